"""Records live models and replays them: what `record` and `replay` do.

A bound on money ends the recording before the task that would begin beyond it. However it ends, what was recorded until
then is kept: it was paid for.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

import anyio

from bridge import screen, tokens
from bridge.bench import live, rows, runner, written
from bridge.bench.arms import arm, policy
from bridge.bench.calibrate import FORMAT_OF, client_of
from bridge.bench.count import Price, cost
from bridge.bench.report import chosen_price
from bridge.bench.rows import Measured
from bridge.bench.wire import FORMATS
from bridge.bench.workloads import workload
from bridge.errors import ConfigurationError
from sandbox import Sandbox

CASSETTE: Final = "cassette.jsonl"
_TIMES: Final = 3  # of what the oracle needs: live models look, fail and repeat


@dataclass
class _Recording:
    """What there is so far. `why` it ended early, if it did."""

    taped: list[live.Tape] = field(default_factory=list[live.Tape])
    found: list[Measured] = field(default_factory=list[Measured])
    spent: float = 0.0
    why: str = ""


def record(
    out: Path,
    provider: str,
    model: str,
    max_usd: float,
    workloads: Sequence[str],
    arms: Sequence[str],
    returns: str,
    wire: str | None,
    tasks: int | None,
    seed: int,
    priced: tuple[str | None, str | None],
    repetitions: int = 1,
) -> int:
    """Record a provider's model; returns the exit status."""
    written.ready(out / CASSETTE)
    client = client_of(provider)
    wire = wire or FORMAT_OF[provider]
    if wire not in FORMATS or (provider == "anthropic") != (wire == "anthropic"):
        raise ConfigurationError(f"--format {wire} is not spoken by {provider}: responses or chat, or anthropic")
    price = chosen_price(*priced)[1]
    plans = [runner.Plan(name, tuple((each, "oracle", returns) for each in arms), tasks) for name in workloads]
    planned, manifest = runner.run(plans, seed=seed, formats=[wire])
    everything = repetitions * len(planned)
    least = repetitions * sum(cost(each.row.requests, price, "none") for each in planned)
    screen.out(
        f"{everything:,} conversations with {model}; the oracle's would cost {least:.2f} USD uncached, live ones "
        f"perhaps {_TIMES * least:.2f}; it ends at {max_usd:.2f} USD"
    )
    kept = _Recording()
    try:
        anyio.run(_record, kept, plans, wire, model, seed, client, price, max_usd, repetitions)
    except KeyboardInterrupt:
        kept.why = "interrupted"
    live.write(out / CASSETTE, kept.taped)
    rows.write(out, kept.found, rows.replaced(manifest, [each.row for each in kept.found]))
    many = f"{len(kept.found):,} of {everything:,} conversations"
    screen.out(f"{many} recorded for {kept.spent:.2f} USD in {out / CASSETTE}")
    if kept.why:
        screen.out(f"it ended early: {kept.why}")
    return 1 if kept.why else 0


async def _record(
    kept: _Recording,
    plans: Sequence[runner.Plan],
    wire: str,
    model: str,
    seed: int,
    client: Any,
    price: Price,
    max_usd: float,
    repetitions: int,
) -> None:
    counter = tokens.load()
    async with client, Sandbox() as sandbox:
        respond = live.live(wire, model, client)
        for repetition, plan in product(range(repetitions), plans):
            for task in workload(plan.workload)(seed, plan.tasks):
                order = plan.made()
                # By chance: what changes at the provider meanwhile is in no arm more than in others.
                random.Random(f"{seed}/{task.id}/{repetition}").shuffle(order)  # noqa: S311  an order, not a key
                for each in order:
                    if kept.spent >= max_usd:
                        return
                    try:
                        played, answers = await live.play(task, each.arm, each.policy, FORMATS[wire], sandbox, respond)
                    except Exception as error:  # noqa: BLE001  of any SDK: what was paid for until then is kept
                        kept.why = f"{task.id} in {each.arm.name}: {type(error).__name__}: {error}"
                        return
                    names = each.arm.name, f"live/{model}", each.policy.name
                    usage = [answer.usage for answer in answers]
                    kept.found.append(runner.measured(task, names, wire, played, counter, seed, usage, repetition))
                    kept.spent += sum(_billed(answer.usage, price) for answer in answers)
                    told = task.id, plan.workload, each.arm.name, each.policy.name, wire, model, seed
                    kept.taped.append(live.Tape(*told, answers, repetition))


def _billed(usage: dict[str, int], price: Price) -> float:
    cached = usage.get("cached", 0)
    fresh = usage.get("input", 0) - cached
    return (fresh * price.input + cached * price.cached + usage.get("output", 0) * price.output) / 1e6


def replay(cassette: Path, out: Path) -> int:
    """Play a cassette again; returns the exit status: 1 where requests are no longer the recorded ones."""
    tapes = live.read(cassette)
    if not tapes:
        raise ConfigurationError(f"cassette {cassette}: there is nothing in it")
    written.ready(out / rows.ROWS)
    found, diverged = anyio.run(_replayed, tapes)
    plans = [runner.Plan(name, (), None) for name in dict.fromkeys(tape.workload for tape in tapes)]
    manifest = runner.manifest(
        plans,
        {plan.workload: [tape.task for tape in tapes if tape.workload == plan.workload] for plan in plans},
        tapes[0].seed,
        sorted({tape.format for tape in tapes}),
    )
    rows.write(out, found, rows.replaced(manifest, [each.row for each in found]))
    screen.out(f"{len(found):,} conversations replayed; {diverged:,} requests are not the recorded ones")
    return 1 if diverged else 0


async def _replayed(tapes: Sequence[live.Tape]) -> tuple[list[Measured], int]:
    counter = tokens.load()
    found: list[Measured] = []
    diverged = 0
    async with Sandbox() as sandbox:
        for tape in tapes:
            task = next((each for each in workload(tape.workload)(tape.seed, None) if each.id == tape.task), None)
            if task is None:
                raise ConfigurationError(f"cassette: the workload {tape.workload} has no task {tape.task}")
            model = live.Replay(tape)
            chosen, returns = arm(tape.arm), policy(tape.policy)
            played, answers = await live.play(task, chosen, returns, FORMATS[tape.format], sandbox, model)
            names = tape.arm, f"recorded/{tape.model}", tape.policy
            usage = [answer.usage for answer in answers]
            made = runner.measured(task, names, tape.format, played, counter, tape.seed, usage, tape.repetition)
            found.append(made)
            diverged += model.diverged
    return found, diverged
