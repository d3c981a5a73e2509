"""Counting: what a prefix cache would have, what it costs, what comes again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge import tokens
from bridge.bench.count import Price, Request, cached_tokens, cost, count, prices, totals
from bridge.bench.wire import FORMATS, Body, Part
from bridge.errors import ConfigurationError

FORM = FORMATS["responses"]
TOOL = FORM.tool("look", "Looks.", {"type": "object"})
PRICE = Price(input=10, cached=1, output=100)


def body(*questions: str, system: str = "s") -> Body:
    return FORM.body(system, [TOOL], [FORM.user(each) for each in questions])


def request(total: int, prefix: int = 0, output: int = 0) -> Request:
    return Request(
        sha256="", tokens={"user": total}, bytes={"user": total}, prefix=prefix, output_tokens=output, output_bytes=1
    )


def test_the_prefix_ends_at_the_first_object_that_is_another(counter: tokens.Tokens) -> None:
    before = body("one", "two")
    pieces = [piece.text for piece in body("one", "two", "three").pieces()]
    assert count(body("one", "two", "three"), [], before, counter).prefix == counter.total(pieces[:4])
    assert count(body("one", "other", "three"), [], before, counter).prefix == counter.total(pieces[:3])
    assert count(body("one", system="t"), [], before, counter).prefix == 0
    assert count(body("one"), [], None, counter).prefix == 0


def test_output_is_counted_object_by_object(counter: tokens.Tokens) -> None:
    written = [Part("calls", '{"a":1}'), Part("calls", '{"b":"é"}')]
    found = count(body("one"), written, None, counter)
    assert found.output_tokens == counter.count('{"a":1}') + counter.count('{"b":"é"}')
    assert found.output_bytes == 7 + 10


@pytest.mark.parametrize(("prefix", "cached"), [(0, 0), (1023, 0), (1024, 1024), (1151, 1024), (1152, 1152)])
def test_a_cache_has_whole_blocks_and_nothing_short(prefix: int, cached: int) -> None:
    assert cached_tokens(request(5000, prefix)) == cached


def test_cost_is_what_is_fresh_and_cached_and_written() -> None:
    requests = [request(2000, 0, 10), request(3000, 2000, 10)]
    assert cost(requests, PRICE, "none") == pytest.approx((5000 * 10 + 20 * 100) / 1e6)
    assert cost(requests, PRICE, "prefix") == pytest.approx((2000 * 10 + 1080 * 10 + 1920 * 1 + 20 * 100) / 1e6)


def test_where_writing_a_cache_costs_more_fresh_input_does() -> None:
    dear = Price(input=10, cached=1, output=100, cache_write=12.5)
    assert cost([request(1000)], dear, "prefix") == pytest.approx(1000 * 12.5 / 1e6)
    assert cost([request(1000)], dear, "none") == pytest.approx(1000 * 10 / 1e6)


def test_totals_add_up_requests() -> None:
    found = totals([request(100, 0, 5), request(200, 100, 7)])
    assert (found.requests, found.input_tokens, found.output_tokens, found.tokens) == (2, 300, 12, 312)
    assert (found.peak, found.resent, found.bytes) == (207, 100, 302)


def test_the_price_file_says_of_which_day_it_is_and_where_from() -> None:
    known = prices()
    assert known.date >= "2026-11-30"
    assert len(known.source) > 20
    assert known.default in known.models


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ({"date": "d", "source": "s", "default": "x", "models": {}}, "default 'x' is no model of it"),
        ({"date": "d"}, "missing required field"),
    ],
)
def test_a_price_file_that_is_none_is_refused(tmp_path: Path, content: Any, said: str) -> None:
    file = tmp_path / "prices.json"
    if content is not None:
        file.write_text(json.dumps(content))
    with pytest.raises(ConfigurationError) as caught:
        prices(str(file))
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
