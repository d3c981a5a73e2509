"""Statistics of paired rows: the same task, seed and format in two variants.

Intervals are percentile bootstraps over groups of tasks (one source or template), 10,000 draws, the seed given. The
rows of scripted models have no chance in them: their intervals describe how tasks differ, nothing else. Where a
workload has too few groups, the range is given in place of an interval.
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
    by_task = {(row.task, row.format, row.seed): row for row in base}
    pairs = [(row, by_task[key]) for row in ours if (key := (row.task, row.format, row.seed)) in by_task]
    if not pairs:
        raise ValueError("no task is in both")
    every = pairs
    if all(row.model.startswith("scripted/") for row, _ in pairs):  # a plan that was not executed saves nothing
        pairs = [pair for pair in pairs if pair[0].plan_executed and pair[1].plan_executed] or pairs
    groups = [row.group or row.task for row, _ in pairs]

    def estimates(of: Callable[[Row], float]) -> tuple[Estimate, Estimate]:
        mine, other = [of(row) for row, _ in pairs], [of(row) for _, row in pairs]
        return bootstrap(mine, other, groups, seed)

    tokens, of_sums = estimates(_tokens)
    saved = [_saved(_tokens(row), _tokens(other)) for row, other in pairs]
    costs = [_saved(cost(row.requests, price, "prefix"), cost(other.requests, price, "prefix")) for row, other in pairs]
    order = sorted(range(len(pairs)), key=lambda index: saved[index])
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
        worst=tuple((pairs[index][0].task, saved[index], costs[index]) for index in order[:WORST]),
    )


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
