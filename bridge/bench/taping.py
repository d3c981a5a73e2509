"""Records live models and replays them: what `record` and `replay` do.

A bound on money ends the recording before the task that would begin beyond it; what was recorded until then is kept.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import anyio

from bridge import screen, tokens
from bridge.bench import live, rows, runner
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
    taped, found, spent, why = anyio.run(_recorded, plans, wire, model, seed, client, price, max_usd, repetitions)
    live.write(out / CASSETTE, taped)
    rows.write(out, found, rows.replaced(manifest, [each.row for each in found]))
    screen.out(f"{len(found):,} of {everything:,} conversations recorded for {spent:.2f} USD in {out / CASSETTE}")
    if why:
        screen.out(f"it ended early: {why}")
    return 1 if why else 0


async def _recorded(
    plans: Sequence[runner.Plan],
    wire: str,
    model: str,
    seed: int,
    client: Any,
    price: Price,
    max_usd: float,
    repetitions: int,
) -> tuple[list[live.Tape], list[Measured], float, str]:
    counter = tokens.load()
    taped: list[live.Tape] = []
    found: list[Measured] = []
    spent = 0.0
    async with client, Sandbox() as sandbox:
        respond = live.live(wire, model, client)
        for repetition, plan in product(range(repetitions), plans):
            for task in workload(plan.workload)(seed, plan.tasks):
                order = plan.made()
                # By chance: what changes at the provider meanwhile is in no arm more than in others.
                random.Random(f"{seed}/{task.id}/{repetition}").shuffle(order)  # noqa: S311  an order, not a key
                for each in order:
                    if spent >= max_usd:
                        return taped, found, spent, ""
                    try:
                        played, answers = await live.play(task, each.arm, each.policy, FORMATS[wire], sandbox, respond)
                    except Exception as error:  # noqa: BLE001  of any SDK: what was paid for until then is kept
                        return taped, found, spent, f"{task.id} in {each.arm.name}: {type(error).__name__}: {error}"
                    names = each.arm.name, f"live/{model}", each.policy.name
                    usage = [answer.usage for answer in answers]
                    found.append(runner.measured(task, names, wire, played, counter, seed, usage, repetition))
                    spent += sum(_billed(answer.usage, price) for answer in answers)
                    told = task.id, plan.workload, each.arm.name, each.policy.name, wire, model, seed
                    tape = live.Tape(*told, answers, repetition)
                    taped.append(tape)
    return taped, found, spent, ""


def _billed(usage: dict[str, int], price: Price) -> float:
    cached = usage.get("cached", 0)
    fresh = usage.get("input", 0) - cached
    return (fresh * price.input + cached * price.cached + usage.get("output", 0) * price.output) / 1e6


def replay(cassette: Path, out: Path) -> int:
    """Play a cassette again; returns the exit status: 1 where requests are no longer the recorded ones."""
    tapes = live.read(cassette)
    if not tapes:
        raise ConfigurationError(f"cassette {cassette}: there is nothing in it")
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
