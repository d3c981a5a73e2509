"""Run programs with real tools at full load, and see what comes of it: `python benchmarks/load.py [--seconds N]`.

Two executors share one sandbox; their programs call tools whose effects are counted, one of them on an MCP server.
With `--faults` what may happen to a host is done to it meanwhile, and one of the two has a store; with `--attacks` half
of the programs are those of the corpus. Afterwards each effect must be what the journals say, and no process,
descriptor, thread or task may be left. Exits with 1 and says what is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import dataclasses
import json
import logging
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder's parent is not on the path

from benchmarks.effects import Effects, unlike
from benchmarks.faults import Faults
from benchmarks.held import Held, at_rest, held, left, resident, resident_at_least, settled
from benchmarks.notes import Notes
from bridge import Executor, Policy, Result, Tool, ToolContext, allow, mcp
from bridge.errors import BridgeError
from sandbox import Limits, Sandbox, SandboxError
from sandbox.attacks.corpus import TOOLS, Case
from sandbox.attacks.corpus import load as corpus

LIMITS: Final = Limits(cpu_s=0.5, wall_s=20.0, memory_bytes=64 << 20)
SERVER: Final = Path(__file__).with_name("effects.py")
WARM: Final = 0.3  # of the time, in which caches fill and kept results reach their bound
FLAT: Final = 1.05
# With attacks a moment's results say little: some hold megabytes. Over hours no more than this may be added; after a
# counted number of programs what is left at rest counts. In hours that grows too: the C library's heap gets holes.
FLAT_UNDER_ATTACK: Final = 1.1
GROWN_BYTES: Final = 20_000_000
SLOWEST: Final = 10.0  # times the median
RECOVERED_S: Final = 5.0
CANCELLED: Final = 0.03  # of the programs, where there are faults
ENDLESS: Final = 0.05  # of the attacks that compute until a limit ends them: each takes `cpu_s`
MAX_WAITING, MAX_QUEUED = 64, 100
# name -> program, and how many effects it has; KEY begins their names
PROGRAMS: Final[dict[str, tuple[str, int]]] = {
    "one": ("await tools.append({ key: inputs + '/0' }); return 1", 1),
    "in a row": ("for (let i = 0; i < 5; i++) await tools.append({ key: `${inputs}/${i}` }); return 5", 5),
    "together": ("return (await Promise.all([0, 1, 2, 3].map(i => append({ key: `${inputs}/${i}` })))).length", 4),
    "of a server": ("await tools.counted.append({ key: inputs + '/0' }); return 1", 1),
    "paused": (
        "await append({ key: inputs + '/0' }); await sleep(5); await append({ key: inputs + '/1' }); return 2",
        2,
    ),
    "computed": ("let n = 0; for (let i = 0; i < 2e4; i++) n += i; await append({ key: inputs + '/0' }); return 1", 1),
}  # fmt: skip


@dataclass
class Report:
    """What was measured.

    Attributes:
        ended: Status -> how many programs; "refused" is an exception in our own words.
        wrong: Everything that must not be.
        recovery_s: After each kill of the zygote: seconds until as many programs a second end as before.
        memory_bytes: Of this process's own that are resident, sampled twice a second, the warm-up included.
        rest_bytes: The same before all programs but those of the warm-up, and when everything is closed.
    """

    programs: int = 0
    seconds: float = 0.0
    load_average: float = 0.0
    rate: float = 0.0
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    ended: dict[str, int] = field(default_factory=dict[str, int])
    effects: int = 0
    shares: list[float] = field(default_factory=list[float])
    zygotes: int = 0
    faults: dict[str, int] = field(default_factory=dict[str, int])
    flood: str = ""
    recovery_s: list[float] = field(default_factory=list[float])
    growth: float = 0.0
    memory_bytes: list[int] = field(default_factory=list[int])
    rest_bytes: list[int] = field(default_factory=list[int])
    before: Held | None = None
    after: Held | None = None
    wrong: list[str] = field(default_factory=list[str])


def attacked(case: Case, name: str) -> Tool:
    """A tool that the corpus's programs call; it answers alike in all of them."""

    async def answer(given: Any, _: ToolContext) -> Any:
        return case.answer(name, [given])

    return Tool(name=name, input_schema={}, handler=answer)


class Load:
    """One measurement.

    Args:
        seconds, programs: Until one of them is reached; where programs are counted, not before each fault was done.
        faults: Do what may happen to a host, spread over the programs where they are counted, else every 2 s.
        timed: Whether latency, memory and recovery must be as promised; a busy machine cannot say.
    """

    def __init__(
        self,
        *,
        seconds: float = math.inf,
        programs: float = math.inf,
        clients: int = 8,
        faults: bool = False,
        attacks: bool = False,
        timed: bool = True,
        seed: int = 1,
    ) -> None:
        self.report = Report()
        self._seconds, self._programs, self._clients = seconds, programs, clients
        self._until = math.inf
        self._faults_left = 0  # kinds that were not done yet, where programs are counted
        self._with_faults, self._with_attacks, self._timed = faults, attacks, timed
        self._dice = random.Random(seed)
        self._attacks = [case for case in corpus() if case.tools == TOOLS and not case.replies] if attacks else []
        self._began = 0
        self._named = "w"  # names of effects begin so
        self._calls, self._ends = Notes(), Notes()  # key, outcome; when, how long, whose
        self._untold: list[str] = []
        self._outcomes: collections.Counter[str] = collections.Counter()
        self._kills: list[float] = []

    async def measure(self) -> Report:
        """Load, and say what came of it."""
        report, outside = self.report, held()
        with tempfile.TemporaryDirectory(prefix="load-") as folder:
            effects = Effects(Path(folder, "effects"))
            try:
                await self._loaded(folder, effects)
            finally:
                effects.close()
            closed = await settled(outside)
            report.rest_bytes.append(resident_at_least())
            counted = effects.counted()  # which is no part of what the host has left: a hundred bytes for each
        outside = dataclasses.replace(outside, threads=closed.threads)  # those of a pool last as long as the loop
        report.wrong += left(outside, closed)
        report.wrong += unlike(counted, ((key, outcome) for key, outcome in self._calls), self._untold)
        report.effects = counted.total()
        report.ended = dict(self._outcomes.most_common())
        self._summed()
        return report

    async def _loaded(self, folder: str, effects: Effects) -> None:
        report = self.report
        server = mcp.stdio("counted", sys.executable, [str(SERVER), str(effects.file)], env={"PYTHONPATH": sys.path[0]})
        pooled = f"{folder}/runs.db"
        tools = [effects.tool(), *(attacked(self._attacks[0], name) for name in TOOLS if self._attacks)]
        policy, store = Policy([allow("*")]), f"sqlite:///{pooled}" if self._with_faults else None
        sandbox = Sandbox(limits=LIMITS, max_waiting=MAX_WAITING, max_queued=MAX_QUEUED, recycle_after=500)
        async with (
            sandbox,
            Executor([*tools, server], policy=policy, sandbox=sandbox) as first,
            Executor(tools, policy=policy, sandbox=sandbox, store=store) as second,
        ):
            wanted, self._programs = self._programs, self._clients * len(PROGRAMS)
            await asyncio.gather(*(self._client((first, second)[n % 2], n % 2) for n in range(self._clients)))
            self._programs, self._began, self._named = wanted, 0, "p"
            self._ends.clear()
            self._outcomes.clear()
            report.before = before = await at_rest(pooled)
            report.rest_bytes.append(resident_at_least())
            faults = Faults(sandbox, first, str(SERVER), seed=1)
            began = time.monotonic()
            sampling = asyncio.create_task(self._sample())
            self._until = began + self._seconds
            self._faults_left = len(faults.kinds) if self._with_faults and math.isfinite(wanted) else 0
            clients = [self._client((first, second)[n % 2], n % 2) for n in range(self._clients)]
            await asyncio.gather(*clients, *([self._do(faults)] if self._with_faults else []))
            report.seconds = time.monotonic() - began
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
            for executor in (first, second):  # whatever happened, the next program runs
                result = await executor.run("return [1, 2]")
                if result.value != [1, 2]:
                    report.wrong.append(f"afterwards a program ended as {result.status}: {result.error}")
            report.faults, report.flood = faults.done, f"{faults.ran} ran, {faults.refused} were refused"
            report.wrong += faults.wrong
            report.after = await settled(before, pooled)
            report.wrong += left(before, report.after)

    # ---- who asks for programs --------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        return (self._began < self._programs or self._faults_left > 0) and time.monotonic() < self._until

    async def _client(self, executor: Executor, whose: int) -> None:
        while self._goes_on():
            self._began += 1
            name = f"{self._named}{self._began}"
            if self._attacks and self._dice.random() < 0.5:
                await self._attack(executor)
                continue
            names = [each for each in PROGRAMS if whose == 0 or each != "of a server"]
            program, value = PROGRAMS[self._dice.choice(names)]
            began = time.monotonic()
            try:
                result = await self._run(executor, program, name)
            except (BridgeError, SandboxError, OSError) as error:
                self._untold.append(name)
                self._outcomes[f"refused: {type(error).__name__}"] += 1
                if not self._with_faults:
                    self.report.wrong.append(f"{name} was refused: {error}")
                await asyncio.sleep(0.01)
                continue
            for call in result.calls:
                self._calls.add(call.arguments["key"], call.outcome)
            self._outcomes[result.status] += 1
            if result.status == "completed":
                now = time.monotonic()
                self._ends.add(now, now - began, whose)
                if result.value != value:
                    self.report.wrong.append(f"{name} gave {result.value!r}, not {value!r}")
            elif not self._with_faults:
                self.report.wrong.append(f"{name} ended as {result.status}: {result.error}")

    async def _attack(self, executor: Executor) -> None:
        case = self._dice.choice(self._attacks)
        if case.endless and self._dice.random() > ENDLESS:
            return
        try:
            result = await executor.run(case.js)
        except (BridgeError, SandboxError, OSError) as error:
            self._outcomes[f"refused: {type(error).__name__} (attack)"] += 1
            if not self._with_faults:
                self.report.wrong.append(f"{case.id} was refused: {error}")
            return
        self._outcomes[f"{result.status} (attack)"] += 1

    async def _run(self, executor: Executor, program: str, name: str) -> Result:
        if not self._with_faults or self._dice.random() > CANCELLED:
            return await executor.run(program, inputs=name)
        run = await executor.start(program, inputs=name, wait=False)
        await asyncio.sleep(self._dice.random() * 0.05)
        await run.cancel()
        if run.result is None:
            raise run.fault or SandboxError("cancelled without a result")
        return run.result

    async def _do(self, faults: Faults) -> None:
        """Spread over the programs where they are counted, so that a short run meets each kind; else every 2 s."""
        every, done = self._programs / (len(faults.kinds) + 2), 1
        while self._goes_on():
            if math.isfinite(every) and self._began < every * done:
                await asyncio.sleep(0.01)
                continue
            if not math.isfinite(every):
                await asyncio.sleep(2.0)
            done += 1
            name, at = await faults.next(), time.monotonic()
            self._faults_left -= 1
            if name == "the zygote is killed":
                self._kills.append(at)

    async def _sample(self) -> None:
        while True:
            self.report.memory_bytes.append(resident())
            await asyncio.sleep(0.5)

    # ---- what it comes to -------------------------------------------------------------------------------------------

    def _summed(self) -> None:
        report = self.report
        report.programs, report.load_average = self._began, os.getloadavg()[0]
        report.rate = report.programs / report.seconds
        ends = [(float(when), float(took), int(whose)) for when, took, whose in self._ends]
        took = sorted(took for _, took, _ in ends)
        if len(took) > 1:
            cuts = statistics.quantiles(took, n=100, method="inclusive")
            report.p50_ms, report.p90_ms, report.p99_ms = (1000 * cuts[n - 1] for n in (50, 90, 99))
        counts = collections.Counter(whose for *_, whose in ends)
        report.shares = [counts[whose] / max(1, len(took)) for whose in (0, 1)]
        report.recovery_s = [recovery(at, [when for when, *_ in ends]) for at in self._kills]
        warm = report.memory_bytes[int(len(report.memory_bytes) * WARM) :]
        third = max(1, len(warm) // 3)
        report.growth = statistics.median(warm[-third:]) / statistics.median(warm[:third])
        if not self._timed:
            return
        counted = self._programs < math.inf
        flat = FLAT_UNDER_ATTACK if self._with_attacks else FLAT
        if report.growth > flat and not (counted and self._with_attacks):
            report.wrong.append(f"memory grew by {100 * (report.growth - 1):.1f}% after the warm-up")
        if counted and (grown := report.rest_bytes[1] - report.rest_bytes[0]) > GROWN_BYTES:
            report.wrong.append(f"{grown / 1e6:.0f} MB of memory are left when everything is closed")
        if not (self._with_faults or self._attacks) and report.p99_ms > SLOWEST * report.p50_ms:
            report.wrong.append(f"p99 is {report.p99_ms / report.p50_ms:.1f} times the median")
        if not self._with_faults and min(report.shares) < 0.35:
            report.wrong.append(f"two executors with as many clients had {report.shares} of the programs")
        if slow := [seconds for seconds in report.recovery_s if seconds > RECOVERED_S]:
            report.wrong.append(f"after the zygote was killed it took {max(slow):.1f} s to be as fast as before")


def recovery(at: float, ends: list[float]) -> float:
    """Seconds from a moment until as many programs ended within a second as the median of seconds before."""
    rates = [sum(at - n - 1 <= when < at - n for when in ends) for n in range(10)]
    usual = 0.8 * statistics.median(rates)
    for step in range(200):
        since = at + step / 10
        if sum(since <= when < since + 1 for when in ends) >= usual:
            return step / 10
    return math.inf


def told(report: Report) -> str:
    """The report in words."""
    lines = [
        f"{report.programs:,} programs in {report.seconds:.1f} s, {report.rate:.1f} a second",
        f"load average {report.load_average:.1f}",
        f"completed: {report.p50_ms:.0f} ms (median), {report.p90_ms:.0f} ms (p90), {report.p99_ms:.0f} ms (p99)",
        f"ended: {', '.join(f'{count} {status}' for status, count in report.ended.items())}",
        f"{report.effects:,} effects; shares of two executors {report.shares[0]:.2f} and {report.shares[1]:.2f}",
        f"host memory {report.memory_bytes[-1] >> 20} MiB, {100 * (report.growth - 1):+.1f}% after the warm-up",
        f"at rest, everything closed: {(report.rest_bytes[1] - report.rest_bytes[0]) / 1e6:+.1f} MB",
        f"held before {report.before}, after {report.after}",
    ]
    if report.faults:
        done = ", ".join(f"{count} x {name}" for name, count in report.faults.items())
        lines.append(f"done to it: {done}; of the floods {report.flood}")
        lines.append(f"full speed after a killed zygote: {', '.join(f'{s:.1f} s' for s in report.recovery_s)}")
    return "\n".join([*lines, *([f"WRONG: {what}" for what in report.wrong] or ["nothing is wrong"])])


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, and exit with 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long (default 60, without --programs)")
    parser.add_argument("--programs", type=float, default=math.inf, help="how many")
    parser.add_argument("--clients", type=int, default=8, help="programs asked for at once (default 8)")
    parser.add_argument("--faults", action="store_true", help="kill, fill and use up what the host has")
    parser.add_argument("--attacks", action="store_true", help="let half of the programs be those of the corpus")
    parser.add_argument("--untimed", action="store_true", help="judge no time and no memory: the machine is busy")
    parser.add_argument("--seed", type=int, default=1, help="of the programs' order (default 1)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(words)
    seconds = 60.0 if math.isinf(given.seconds) and math.isinf(given.programs) else given.seconds
    load = Load(
        seconds=seconds,
        programs=given.programs,
        clients=given.clients,
        faults=given.faults,
        attacks=given.attacks,
        timed=not given.untimed,
        seed=given.seed,
    )
    if given.faults or given.attacks:
        logging.getLogger("sandbridge").setLevel(logging.CRITICAL)  # it would tell of each
    report = asyncio.run(load.measure())
    print(json.dumps(asdict(report)) if given.json else told(report))
    if report.wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
