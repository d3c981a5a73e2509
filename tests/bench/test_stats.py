"""Statistics: known values, and that what is drawn is drawn the same every time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.bench.count import Price, Request
from bridge.bench.rows import Row
from bridge.bench.stats import LEAST_GROUPS, bootstrap, compare, done, holm, mcnemar, wilson

PRICE = Price(input=1, cached=0.1, output=10)


def row(task: str, arm: str, tokens: int, **changes: object) -> Row:
    request = Request(
        sha256="", tokens={"user": tokens}, bytes={"user": tokens}, prefix=0, output_tokens=0, output_bytes=0
    )
    fields: dict[str, object] = {
        "task": task,
        "workload": "w",
        "group": task,
        "arm": arm,
        "model": "scripted/oracle",
        "policy": "full",
        "format": "responses",
        "seed": 1,
        "plan_executed": True,
        "calls": 1,
        "calls_failed": 0,
        "unsafe": 0,
        "programs": 0,
        "programs_failed": 0,
        "searches": 0,
        "facts": 2,
        "seen": 1,
        "size": {},
        "requests": [request],
    }
    return Row(**(fields | changes))


def test_pairs_are_compared_task_by_task() -> None:
    base = [row(name, "direct-par", 100) for name in "abcd"]
    ours = [row("a", "prog-decl", 50), row("b", "prog-decl", 100), row("c", "prog-decl", 150), row("z", "prog-decl", 1)]
    found = compare(ours, base, PRICE, 1)
    assert (found.n, found.wins, found.ties, found.losses) == (3, 1, 1, 1)
    assert found.tokens.value == 0
    assert found.worst[0] == ("c", -0.5, pytest.approx(-0.5))
    assert (found.total, found.seen, found.facts, found.executed) == ((100, 100), 3, 6, 3)


def test_a_scripted_plan_that_was_not_executed_is_no_saving_and_a_live_one_is_kept() -> None:
    base = [row(name, "direct-par", 100) for name in "ab"]
    ended = [row("a", "prog-decl", 80), row("b", "prog-decl", 1, plan_executed=False)]
    found = compare(ended, base, PRICE, 1)
    assert (found.n, found.executed, found.wins) == (2, 1, 1)
    assert found.tokens.value == pytest.approx(0.2)
    live = [row(each.task, "prog-decl", 80, model="live/m", plan_executed=each.plan_executed) for each in ended]
    assert compare(live, base, PRICE, 1).wins == 2


def test_of_repetitions_the_mean_of_each_task_counts() -> None:
    base = [row("a", "direct-par", 100, repetition=n) for n in range(4)] + [row("b", "direct-par", 100)]
    ours = [row("a", "prog-decl", tokens, repetition=n) for n, tokens in enumerate((10, 30, 10, 30))]
    found = compare([*ours, row("b", "prog-decl", 60)], base, PRICE, 1)
    assert found.tokens.value == pytest.approx((0.8 + 0.4) / 2)
    assert (found.n, found.wins) == (5, 2)


def test_arms_of_a_live_model_are_held_against_the_baseline_with_a_correction_for_their_number() -> None:
    names = [str(number) for number in range(40)]
    base = [row(name, "direct-par", 1, model="live/m", plan_executed=int(name) < 30) for name in names]
    better = [row(name, "prog-decl", 1, model="live/m", plan_executed=int(name) < 38) for name in names]
    same = [row(name, "prog-search", 1, model="live/m", plan_executed=int(name) < 30) for name in names]
    found = done({"base": base, "better": better, "same": same}, base, 1)
    assert (found["base"].done, found["base"].n, found["base"].p) == (30, 40, 1.0)
    assert (found["base"].low, found["base"].high) == wilson(30, 40)
    assert (found["better"].better, found["better"].worse) == (8, 0)
    assert found["better"].p == pytest.approx(2 * mcnemar(8, 0))
    assert found["better"].difference.value == pytest.approx(0.2)
    assert 0.05 < found["better"].difference.low < 0.2 < found["better"].difference.high
    assert (found["better"].no_loss, found["same"].no_loss, found["same"].p) == (True, True, 1.0)


def test_that_nothing_differs_by_chance_rules_out_no_loss() -> None:
    names = [str(number) for number in range(30)]
    base = [row(name, "direct-par", 1, plan_executed=int(name) % 2 == 0) for name in names]
    ours = [row(name, "prog-decl", 1, plan_executed=int(name) % 3 == 0) for name in names]
    found = done({"ours": ours}, base, 1)["ours"]
    assert found.p > 0.05
    assert not found.no_loss


def test_nothing_in_common_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="no task is in both"):
        compare([row("a", "prog-decl", 1)], [row("b", "direct-par", 1)], PRICE, 1)


def test_rows_of_other_formats_are_no_pairs() -> None:
    base = [row("a", "direct-par", 100), row("a", "direct-par", 300, format="chat")]
    found = compare([row("a", "prog-decl", 50), row("a", "prog-decl", 75, format="chat")], base, PRICE, 1)
    assert (found.n, found.tokens.value) == (2, pytest.approx((0.5 + 0.75) / 2))


def test_few_groups_have_a_range_and_no_interval() -> None:
    found, _ = bootstrap([50, 80], [100, 100], ["a", "b"], 1)
    assert (found.value, found.low, found.high, found.ranged) == pytest.approx((0.35, 0.2, 0.5, True))


def test_the_interval_holds_the_median_and_comes_out_the_same_every_time() -> None:
    chance = random.Random(5)
    ours, base = [chance.uniform(20, 120) for _ in range(80)], [100.0] * 80
    groups = [str(number) for number in range(80)]
    first, of_sums = bootstrap(ours, base, groups, 3)
    assert first.low < first.value < first.high
    assert of_sums.low < of_sums.value < of_sums.high
    assert (first, of_sums) == bootstrap(ours, base, groups, 3)
    assert first != bootstrap(ours, base, groups, 4)[0]


def test_tasks_of_one_group_are_drawn_together() -> None:
    """Twenty copies of each of thirty values tell as much as the thirty: the interval may not shrink by copying."""
    chance = random.Random(5)
    values = [chance.uniform(20, 120) for _ in range(LEAST_GROUPS + 10)]
    single, _ = bootstrap(values, [100.0] * len(values), [str(n) for n in range(len(values))], 3)
    copies = [value for value in values for _ in range(20)]
    groups = [str(number) for number in range(len(values)) for _ in range(20)]
    together, _ = bootstrap(copies, [100.0] * len(copies), groups, 3)
    apart, _ = bootstrap(copies, [100.0] * len(copies), [str(n) for n in range(len(copies))], 3)
    assert together.high - together.low == pytest.approx(single.high - single.low, rel=0.25)
    assert apart.high - apart.low < 0.6 * (together.high - together.low)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=1, max_size=40))
def test_the_point_is_the_median_of_the_shares_saved(pairs: list[tuple[int, int]]) -> None:
    ours, base = [float(pair[0]) for pair in pairs], [float(pair[1]) for pair in pairs]
    saved = sorted(1 - a / b for a, b in pairs)
    middle = (saved[(len(saved) - 1) // 2] + saved[len(saved) // 2]) / 2
    found, of_sums = bootstrap(ours, base, [str(n) for n in range(len(pairs))], 1)
    assert found.value == pytest.approx(middle)
    assert of_sums.value == pytest.approx(1 - sum(ours) / sum(base))


def test_known_values_of_binary_outcomes() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(1, 9) == pytest.approx(2 * 11 / 1024)
    assert mcnemar(5, 5) == 1.0


def test_holm_adjusts_a_family() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
