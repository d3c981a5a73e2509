"""Break-even: a model of both sides that counts as the measurement does."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.bench.count import Price, totals
from bridge.bench.rows import read_rows
from bridge.bench.sweep import Case, Units, direct, grid, least, programmatic, saved, table, units

PRICE = Price(input=5, cached=0.5, output=30)
ROUND = Units(
    base=100, json_tool=200, script_tool=100, how=400, call=30, wrapper=20, code=150, answer=50, per_byte=0.25
)


def test_direct_calls_are_sent_again_in_every_later_request() -> None:
    found = totals(direct(Case(tools=10, calls=4, levels=2, reply_bytes=400), ROUND))
    fixed, item = 100 + 10 * 200, 30 + 20 + 100
    assert found.requests == 3
    assert found.input_tokens == 3 * fixed + 2 * item + 4 * item
    assert found.output_tokens == 4 * 30 + 50


def test_a_program_takes_two_requests_and_a_failed_one_a_third_as_far_as_it_is_probable() -> None:
    sound = totals(programmatic(Case(tools=10, calls=4), ROUND))
    assert (sound.requests, sound.input_tokens, sound.output_tokens) == (2, 2 * 1500 + 150 + 20 + 200, 150 + 50)
    failing = totals(programmatic(Case(tools=10, calls=4, fault=1), ROUND))
    assert failing.requests == 3
    assert failing.tokens > sound.tokens + 1500


def test_the_least_number_is_where_the_sign_changes() -> None:
    for of in (lambda n: Case(n, 1, 1, 1000), lambda n: Case(3, n, 1, 1000), lambda n: Case(3, 2, 1, n)):
        for price in (None, PRICE):
            number = least(of, ROUND, price)
            assert number is not None
            assert saved(of(number), ROUND, price) > 0
            assert number == 1 or saved(of(number - 1), ROUND, price) <= 0


def test_where_programs_never_win_there_is_no_least_number() -> None:
    same = Units(
        base=100, json_tool=10, script_tool=10, how=400, call=30, wrapper=20, code=150, answer=50, per_byte=0.25
    )
    assert least(lambda n: Case(n, 1, 1, 10), same) is None


def test_more_calls_and_larger_replies_save_more() -> None:
    found = grid(ROUND, [1, 5, 50], [50, 1000, 20_000])
    assert all(line == sorted(line) for line in found)
    assert all(list(column) == sorted(column) for column in zip(*found, strict=True))


def test_the_table_has_both_currencies_and_says_never_where_it_is_never() -> None:
    found = table(ROUND, PRICE)
    assert {row[1] for row in found} == {"tools", "calls", "bytes of a reply"}
    assert all(row[2] == "never" or int(row[2].replace(",", "")) > 0 for row in found)


def test_the_model_fits_what_was_measured(measured: Path) -> None:
    """Tasks of one level: within a fifth, of which most is that their replies differ in size."""
    unit = units()
    rows = {row.arm: row for row in read_rows(measured) if row.task == "adverse-small-0"}
    small = rows["direct-par"]
    size = small.requests[-1].bytes["results"] / small.calls - 90
    case = Case(tools=3, calls=2, reply_bytes=size)
    # its three tools are far smaller than the average one: the difference is known exactly
    short = Units(**{**vars(unit), "json_tool": small.requests[0].tokens["tools"] / 3})
    assert totals(direct(case, short)).tokens == pytest.approx(totals(small.requests).tokens, rel=0.2)


def test_units_are_those_of_real_definitions() -> None:
    found = units()
    assert 200 < found.json_tool < 320  # 251 on average in 5,571 real ones
    assert 0.4 < found.script_tool / found.json_tool < 0.9
    assert found == units()
