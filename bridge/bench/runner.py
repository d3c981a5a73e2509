"""Runs tasks in all arms, in several processes, and hands back rows. What is run when nothing is said is decided here.

The same seed gives the same rows, whatever the number of processes: each task is played by itself, and the files are
sorted. Everything runs on asyncio, where calls that are made together start in their order: the stateful tasks of bfcl
need that.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import platform
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import anyio

from bridge import tokens
from bridge.bench.arms import ARMS, Arm, Policy, arm, policy
from bridge.bench.count import COHORTS, Request, count, prices
from bridge.bench.datasets import DATASETS
from bridge.bench.models import Scripted, scripted
from bridge.bench.play import SYSTEM, Played, play
from bridge.bench.rows import Manifest, Measured, Row
from bridge.bench.wire import FORMATS, Body
from bridge.bench.workloads import workload
from bridge.errors import ConfigurationError
from sandbox import Sandbox

if TYPE_CHECKING:
    from bridge.bench.tasks import Task
    from bridge.tokens import Tokens

SEED: Final = 20261130
_CHUNK: Final = 10  # tasks that a process takes at once


@dataclass(frozen=True)
class Variant:
    """An arm with a model and a result policy."""

    arm: Arm
    model: Scripted
    policy: Policy

    @property
    def names(self) -> tuple[str, str, str]:
        """As in rows."""
        return self.arm.name, self.model.name, self.policy.name


def variant(arm_name: str, model: str = "oracle", returns: str = "full") -> Variant:
    """A variant by names. Of a direct arm only the cap of the policy matters, and its model is the oracle.

    Raises:
        ConfigurationError: There is no such arm, model or policy.
    """
    chosen, wanted = arm(arm_name), policy(returns)
    if not chosen.programs:
        wanted = Policy("full", wanted.cap_bytes)
    return Variant(chosen, scripted(model).seen_in(chosen), wanted)


_LADDER: Final = (
    ("direct-par",),
    ("direct-seq",),
    ("direct-compact",),
    ("prog-decl", "oracle", "full"),
    ("prog-decl", "oracle", "projection"),
    ("prog-decl", "staged", "projection"),
    ("prog-equal", "oracle", "full"),
)
_HABITS: Final = (
    ("direct-search",),
    ("prog-search", "oracle", "projection"),
    ("prog-decl", "explore", "projection"),
    ("prog-decl", "faulty@1", "projection"),
    ("prog-decl", "explore+faulty@1", "projection"),
)
_CAPPED: Final = (
    ("direct-par", "oracle", "cap:6000"),
    ("prog-decl", "oracle", "projection+cap:6000"),
    ("prog-decl", "staged", "projection+cap:6000"),
)
_EQUAL: Final = (("prog-equal", "oracle", "full"), ("prog-equal", "oracle", "projection"))
_FAULTS: Final = tuple(("prog-decl", f"faulty@{p}", "projection") for p in ("0.1", "0.3", "0.5", "1"))
STANDARD: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "orders": (*_LADDER, *_HABITS),
    "expenses": (*_LADDER, *_HABITS),
    "fanout": (*_LADDER, *_HABITS),
    "catalogue": (("direct-par",), ("direct-search",), *_LADDER[4:5], *_LADDER[6:], *_HABITS[1:2]),
    "adverse": (*_LADDER, *_HABITS),
    "bfcl": (*_LADDER[:2], *_LADDER[3:4], *_EQUAL),
    "bfcl-long": (
        *_LADDER[:1],
        *_LADDER[3:4],
        ("prog-equal", "oracle", "full"),
        ("prog-equal", "oracle", "projection"),
    ),
    "complexfuncbench": (*_LADDER, *_CAPPED, *_FAULTS),
}
"""What is run of each workload for the report when no arms are named."""
COUNTS: Final = {"bfcl": 100, "bfcl-long": 100, "complexfuncbench": 100}


@dataclass(frozen=True)
class Plan:
    """What is to be run of one workload."""

    workload: str
    variants: tuple[tuple[str, ...], ...]
    tasks: int | None = None

    def made(self) -> list[Variant]:
        """Its variants, each once."""
        return list(dict.fromkeys(variant(*names) for names in self.variants))


def standard(names: Iterable[str], tasks: int | None = None) -> list[Plan]:
    """The report's plans for workloads."""
    return [Plan(name, STANDARD[name], COUNTS.get(name) if tasks is None else tasks) for name in names]


async def measure(
    task: Task, chosen: Variant, format_name: str, sandbox: Sandbox, counter: Tokens, seed: int
) -> Measured:
    """Play one task in one variant, and count it."""
    played = await play(task, chosen.arm, chosen.model, chosen.policy, FORMATS[format_name], sandbox, seed=seed)
    return measured(task, chosen.names, format_name, played, counter, seed)


def measured(
    task: Task,
    names: tuple[str, str, str],
    format_name: str,
    played: Played,
    counter: Tokens,
    seed: int,
    usage: Sequence[dict[str, int]] = (),
    repetition: int = 0,
) -> Measured:
    """Count what was played."""
    requests: list[Request] = []
    before: Body | None = None
    for body, output in played.requests:
        requests.append(count(body, output, before, counter))
        before = body
    row = Row(
        task=task.id,
        workload=task.workload,
        group=task.group,
        arm=names[0],
        model=names[1],
        policy=names[2],
        format=format_name,
        seed=seed,
        plan_executed=played.executed,
        calls=len(played.made),
        calls_failed=played.failed,
        unsafe=played.unsafe,
        programs=played.programs,
        programs_failed=played.programs_failed,
        searches=played.searches,
        facts=played.facts,
        seen=played.seen,
        size=dict(task.size),
        requests=requests,
        usage=list(usage),
        repetition=repetition,
    )
    return Measured(row, played.requests, played.wall_s)


def run(
    plans: Sequence[Plan],
    *,
    seed: int = SEED,
    formats: Sequence[str] = ("responses",),
    jobs: int = 1,
    tell: Callable[[int, int], None] = lambda done, all_: None,
) -> tuple[list[Measured], Manifest]:
    """Run plans and count everything.

    Args:
        jobs: Processes. The rows do not depend on it.
        tell: Called with (rows done, rows in all).

    Raises:
        ConfigurationError: A plan names what is not there.
        SandboxError: V8 or the walls are not there.
    """
    formats = list(dict.fromkeys(formats))
    for name in formats:
        if name not in FORMATS:
            raise ConfigurationError(f"there is no format {name!r}; there is: {', '.join(FORMATS)}")
    tokens.load()
    chunks: list[tuple[str, int, int | None, tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]]] = []
    ids: dict[str, list[str]] = {}
    total = 0
    for plan in plans:
        made = plan.made()
        ids[plan.workload] = [task.id for task in _tasks(plan.workload, seed, plan.tasks)]
        total += len(ids[plan.workload]) * len(made) * len(formats)
        for start in range(0, len(ids[plan.workload]), _CHUNK):
            part = tuple(ids[plan.workload][start : start + _CHUNK])
            chunks.append((plan.workload, seed, plan.tasks, part, plan.variants, tuple(formats)))
    found: list[Measured] = []
    for rows in _worked(chunks, jobs):
        found += rows
        tell(len(found), total)
    return found, manifest(plans, ids, seed, formats)


def _worked(chunks: Sequence[tuple[Any, ...]], jobs: int) -> Iterable[list[Measured]]:
    if jobs <= 1:
        for chunk in chunks:
            yield _chunk(*chunk)
        return
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _left_to_the_parent) as pool:
        try:
            for done in as_completed([pool.submit(_chunk, *chunk) for chunk in chunks]):
                yield done.result()
        except BaseException:  # an interruption, or what a chunk raised: nobody waits for the other chunks
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise


def _left_to_the_parent() -> None:
    """An interruption at the terminal reaches every process: one that took it as its own could wait for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@cache
def _tasks(name: str, seed: int, count: int | None) -> Sequence[Task]:
    """The tasks of a workload, made once in each process: what a run changes is made anew by `Task.open`."""
    return workload(name)(seed, count)


def _chunk(
    name: str,
    seed: int,
    tasks: int | None,
    ids: Sequence[str],
    variants: Sequence[tuple[str, ...]],
    formats: Sequence[str],
) -> list[Measured]:
    counter = tokens.load()
    wanted = [task for task in _tasks(name, seed, tasks) if task.id in ids]
    made = Plan(name, tuple(variants), tasks).made()

    async def work() -> list[Measured]:
        async with Sandbox() as sandbox:
            return [
                await measure(task, chosen, format_name, sandbox, counter, seed)
                for task in wanted
                for chosen in made
                for format_name in formats
            ]

    return anyio.run(work)


def manifest(plans: Sequence[Plan], ids: dict[str, list[str]], seed: int, formats: Sequence[str]) -> Manifest:
    """What there is to say of a measurement beside its rows."""
    table = prices()
    variants = {(plan.workload, *each.names) for plan in plans for each in plan.made()}
    used = {name for name in DATASETS if any(plan.workload.startswith(name) for plan in plans)}
    return Manifest(
        sandbridge=_version("sandbridge"),
        python=platform.python_version(),
        engine=f"mini-racer {_version('mini-racer')}",
        tokenizer=f"tiktoken {_version('tiktoken')}, {tokens.ENCODING}",
        ranks_sha256=tokens.RANKS_SHA256,
        prices_date=table.date,
        prices_source=table.source,
        seed=seed,
        formats=list(formats),
        workloads=ids,
        variants=[list(each) for each in sorted(variants)],
        datasets={name: f"{DATASETS[name].requirement} sha256:{DATASETS[name].sha256}" for name in sorted(used)},
        cohorts=list(COHORTS),
        models=sorted({each[2] for each in variants}),
        system=SYSTEM,
    )


def _version(package: str) -> str:
    with contextlib.suppress(ModuleNotFoundError):
        return version(package)
    return "unknown"


assert {names[0] for each in STANDARD.values() for names in each} <= ARMS.keys()
