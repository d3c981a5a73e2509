"""Statistics of paired rows: the same task, seed and format in two variants.

Intervals are percentile bootstraps over groups of tasks (one source or template), 10,000 draws, the seed given. The
rows of scripted models have no chance in them: their intervals describe how tasks differ, nothing else. Where a
workload has too few groups, the range is given in place of an interval. Of repetitions the mean of each task counts.

Only live models can do a task or not: `done` compares how often they did, with intervals for each arm and exact tests
of the pairs in which two arms differ, corrected for their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bridge.bench.count import Price, cost, totals

if TYPE_CHECKING:
    from bridge.bench.rows import Row

DRAWS: Final = 10_000
LEAST_GROUPS: Final = 20  # fewer say little about other tasks: then the range is shown
SHARE: Final = 0.95
WORST: Final = 5
MARGIN: Final = 0.03  # a loss of fewer tasks than this share is none: said here, before anything is measured


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval, or with its range (`ranged`) where there are too few groups."""

    value: float
    low: float
    high: float
    ranged: bool = False


@dataclass(frozen=True)
class Compared:
    """One variant against the baseline over the tasks that both have.

    Attributes:
        n: All tasks that both have; the figures are of those whose plan was executed (`executed`), see `compare`.
        tokens, cost, cost_uncached, peak: Share saved, median over tasks; negative is a loss.
        tokens_of_sums: Share saved of all tokens together: large tasks weigh more.
        wins, ties, losses: Of tasks, by tokens.
        worst: The tasks with the least saved, and what.
    """

    n: int
    tokens: Estimate
    tokens_of_sums: Estimate
    cost: Estimate
    cost_uncached: Estimate
    peak: Estimate
    wins: int
    ties: int
    losses: int
    requests: tuple[float, float]
    output: tuple[float, float]
    total: tuple[float, float]
    executed: int
    seen: int
    facts: int
    programs: int
    programs_failed: int
    worst: tuple[tuple[str, float, float], ...]


def compare(ours: Sequence[Row], base: Sequence[Row], price: Price, seed: int) -> Compared:
    """Compare rows of one variant with those of the baseline.

    Of scripted models only tasks are compared whose plan was executed on both sides: one that ended early would pass
    for a saving. Those of live models are all kept, failures included.

    Raises:
        ValueError: They have no task in common.
    """
    pairs = paired(ours, base)
    if not pairs:
        raise ValueError("no task is in both")
    every = pairs
    if all(row.model.startswith("scripted/") for row, _ in pairs):  # a plan that was not executed saves nothing
        pairs = [pair for pair in pairs if pair[0].plan_executed and pair[1].plan_executed] or pairs
    by_task: dict[tuple[str, str, int], list[tuple[Row, Row]]] = {}
    for pair in pairs:
        by_task.setdefault((pair[0].task, pair[0].format, pair[0].seed), []).append(pair)
    tasks = list(by_task.values())
    groups = [same[0][0].group or same[0][0].task for same in tasks]

    def means(of: Callable[[Row], float]) -> tuple[list[float], list[float]]:
        sides = [_means(same, of) for same in tasks]
        return [mine for mine, _ in sides], [other for _, other in sides]

    def estimates(of: Callable[[Row], float]) -> tuple[Estimate, Estimate]:
        return bootstrap(*means(of), groups, seed)

    tokens, of_sums = estimates(_tokens)
    saved = list(map(_saved, *means(_tokens)))
    costs = list(map(_saved, *means(lambda row: cost(row.requests, price, "prefix"))))
    order = sorted(range(len(tasks)), key=lambda index: saved[index])
    return Compared(
        n=len(every),
        tokens=tokens,
        tokens_of_sums=of_sums,
        cost=estimates(lambda row: cost(row.requests, price, "prefix"))[0],
        cost_uncached=estimates(lambda row: cost(row.requests, price, "none"))[0],
        peak=estimates(lambda row: totals(row.requests).peak)[0],
        wins=sum(each > 0 for each in saved),
        ties=sum(each == 0 for each in saved),
        losses=sum(each < 0 for each in saved),
        requests=_means(pairs, lambda row: len(row.requests)),
        output=_means(pairs, lambda row: totals(row.requests).output_tokens),
        total=_means(pairs, _tokens),
        executed=sum(row.plan_executed for row, _ in every),
        seen=sum(row.seen for row, _ in pairs),
        facts=sum(row.facts for row, _ in pairs),
        programs=sum(row.programs for row, _ in pairs),
        programs_failed=sum(row.programs_failed for row, _ in pairs),
        worst=tuple((tasks[index][0][0].task, saved[index], costs[index]) for index in order[:WORST]),
    )


def paired(ours: Sequence[Row], base: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The rows of one variant with those of another of the same task, seed, format and repetition."""
    known = {(row.task, row.format, row.seed, row.repetition): row for row in base}
    keys = [(row.task, row.format, row.seed, row.repetition) for row in ours]
    return [(row, known[key]) for row, key in zip(ours, keys, strict=True) if key in known]


@dataclass(frozen=True)
class Done:
    """How often a live model did its task in one arm: the calls of the ground truth, no other, the right state.

    Attributes:
        low, high: Of the share `done / n`, by Wilson.
        better, worse: Pairs in which only this arm, or only the baseline, did it.
        difference: Share of pairs, this arm less the baseline; its interval is drawn over tasks.
        p: Exact McNemar of the pairs, by Holm corrected for all arms of the table; 1 for the baseline itself.
    """

    n: int
    done: int
    low: float
    high: float
    better: int
    worse: int
    difference: Estimate
    p: float

    @property
    def no_loss(self) -> bool:
        """Whether a loss of more than `MARGIN` is ruled out. That two arms do not differ is never shown by `p`."""
        return not self.difference.ranged and self.difference.low > -MARGIN


def done(variants: Mapping[str, Sequence[Row]], baseline: Sequence[Row], seed: int) -> dict[str, Done]:
    """How often tasks were done, by variant, each held against the baseline.

    Args:
        variants: Rows of live models, failures included; all together are the family that `p` is corrected for.
    """
    pairs = {name: paired(rows, baseline) for name, rows in variants.items()}
    split = {
        name: (
            sum(row.plan_executed and not other.plan_executed for row, other in both),
            sum(other.plan_executed and not row.plan_executed for row, other in both),
        )
        for name, both in pairs.items()
    }
    compared = {name: mcnemar(*split[name]) for name, rows in variants.items() if rows is not baseline}
    corrected = holm(compared)
    found: dict[str, Done] = {}
    for name, rows in variants.items():
        count = sum(row.plan_executed for row in rows)
        low, high = wilson(count, len(rows))
        better, worse = split[name]
        found[name] = Done(
            n=len(rows),
            done=count,
            low=low,
            high=high,
            better=better,
            worse=worse,
            difference=_difference(pairs[name], seed),
            p=corrected.get(name, 1.0),
        )
    return found


def _difference(pairs: Sequence[tuple[Row, Row]], seed: int) -> Estimate:
    """The mean difference of pairs, its interval drawn over tasks: repetitions of one task are not independent."""
    import numpy

    by_task: dict[str, list[int]] = {}
    for row, other in pairs:
        by_task.setdefault(row.task, []).append(row.plan_executed - other.plan_executed)
    if not by_task:
        return Estimate(0.0, -1.0, 1.0, True)
    each = numpy.asarray([sum(found) / len(found) for found in by_task.values()], float)
    if len(each) < LEAST_GROUPS:
        return Estimate(float(each.mean()), float(each.min()), float(each.max()), True)
    chance = numpy.random.RandomState(seed % 2**32)
    weights = chance.multinomial(len(each), [1 / len(each)] * len(each), size=DRAWS)
    tail = 100 * (1 - SHARE) / 2
    low, high = numpy.percentile(weights @ each / len(each), [tail, 100 - tail])
    return Estimate(float(each.mean()), float(low), float(high))


def bootstrap(
    ours: Sequence[float], base: Sequence[float], groups: Sequence[str], seed: int
) -> tuple[Estimate, Estimate]:
    """Median of the shares saved, and the share saved of the sums, each with its interval."""
    import numpy

    mine, other = numpy.asarray(ours, float), numpy.asarray(base, float)
    saved: Any = 1 - mine / other
    names = sorted(set(groups))
    of_sums = float(1 - mine.sum() / other.sum())
    if len(names) < LEAST_GROUPS:
        low, high = float(saved.min()), float(saved.max())
        return Estimate(float(numpy.median(saved)), low, high, True), Estimate(of_sums, low, high, True)
    number = {name: index for index, name in enumerate(names)}
    member = numpy.asarray([number[group] for group in groups])
    chance = numpy.random.RandomState(seed % 2**32)
    drawn = chance.multinomial(len(names), [1 / len(names)] * len(names), size=DRAWS)
    weights = drawn[:, member]
    order = numpy.argsort(saved, kind="stable")
    medians = _medians(numpy, saved[order], weights[:, order])
    sums = 1 - (weights @ mine) / (weights @ other)
    tail = 100 * (1 - SHARE) / 2
    ends = [[float(each) for each in numpy.percentile(draws, [tail, 100 - tail])] for draws in (medians, sums)]
    return (
        Estimate(float(numpy.median(saved)), ends[0][0], ends[0][1]),
        Estimate(of_sums, ends[1][0], ends[1][1]),
    )


def _medians(numpy: Any, values: Any, weights: Any) -> Any:
    """The median of each draw: values in order, and how often each was drawn."""
    reached = weights.cumsum(axis=1)
    whole = reached[:, -1:]
    low = (reached > (whole - 1) // 2).argmax(axis=1)
    high = (reached > whole // 2).argmax(axis=1)
    return (values[low] + values[high]) / 2


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95% interval of a proportion."""
    if n == 0:
        return 0.0, 1.0
    z = 1.959964
    share = successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def mcnemar(only_ours: int, only_base: int) -> float:
    """The exact two-sided p of paired yes-or-no outcomes, of the pairs in which the two differ."""
    n, least = only_ours + only_base, min(only_ours, only_base)
    if n == 0:
        return 1.0
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(least + 1)) / 2**n)


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """p values of a family, adjusted."""
    adjusted: dict[str, float] = {}
    so_far = 0.0
    for rank, (name, value) in enumerate(sorted(values.items(), key=lambda pair: pair[1])):
        so_far = max(so_far, min(1.0, (len(values) - rank) * value))
        adjusted[name] = so_far
    return adjusted


def _tokens(row: Row) -> float:
    return totals(row.requests).tokens


def _saved(ours: float, base: float) -> float:
    return 1 - ours / base


def _means(pairs: Sequence[tuple[Row, Row]], of: Callable[[Row], float]) -> tuple[float, float]:
    return sum(of(row) for row, _ in pairs) / len(pairs), sum(of(row) for _, row in pairs) / len(pairs)
