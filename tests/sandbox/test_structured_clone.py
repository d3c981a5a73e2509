"""structuredClone against HTML's structured serialisation: what is copied, what is lost, what is refused.

`tests/data/clones.jsonl` has a row per property: its name, and an expression that must be true, where `c` is
structuredClone and `tag` is Object.prototype.toString.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .plain_v8 import PlainV8


@pytest.fixture(scope="module")
def v8() -> Iterator[PlainV8]:
    with PlainV8() as plain:
        yield plain


COPIES: dict[str, str] = dict(
    json.loads(line) for line in (Path(__file__).parents[1] / "data" / "clones.jsonl").read_text("ascii").splitlines()
)


def test_everything_that_can_be_cloned_is(v8: PlainV8) -> None:
    check = """(rows, caught) => {
      const c = structuredClone, tag = (x) => Object.prototype.toString.call(x);
      return [%s];
    }"""
    one = "(() => { try { return %s; } catch (e) { return String(e); } })()"
    found = v8(check % ", ".join(one % code for code in COPIES.values()))
    assert dict(zip(COPIES, found, strict=True)) == dict.fromkeys(COPIES, True)


REFUSED = {
    "() => {}": "a function",
    "class {}": "a function",
    "new Proxy(() => {}, {})": "a function",
    "Symbol('s')": "a symbol",
    "Object(Symbol())": "a Symbol",
    "Promise.resolve()": "a Promise",
    "new WeakMap()": "a WeakMap",
    "new WeakSet()": "a WeakSet",
    "(function* () {})()": "an Iterator",
    "[].values()": "an Iterator",
    "new Map().entries()": "an Iterator",
    "(async function* () {})()": "an AsyncGenerator",
    "new Intl.NumberFormat()": "a NumberFormat",
    "(function () { return arguments; })()": "an arguments object",
    "new URL('http://h')": "an URL",
    "new URLSearchParams('a=1')": "an URLSearchParams",
    "new TextDecoder()": "a TextDecoder",
    "lose((b) => b)": "a detached ArrayBuffer",
    "lose((b) => new Uint8Array(b))": "a detached ArrayBuffer",
    "shrink((b) => new Uint8Array(b, 0, 8))": "a view out of the bounds of its buffer",
    "shrink((b) => new DataView(b, 4))": "a view out of the bounds of its buffer",
}


def test_what_cannot_be_cloned_is_refused_wherever_it_stands(v8: PlainV8) -> None:
    refuse = """(_, caught) => {
      const lose = (view) => { const b = new ArrayBuffer(1), v = view(b); b.transfer(); return v; };
      const shrink = (view) => {
        const b = new ArrayBuffer(8, { maxByteLength: 8 }), v = view(b);
        b.resize(2);
        return v;
      };
      return [%s].map((v) => [v, { a: [v] }, new Map([[1, v]])].map((x) => caught(() => structuredClone(x))));
    }"""
    said = [f"DataCloneError: structuredClone: {what} cannot be cloned" for what in REFUSED.values()]
    assert v8(refuse % ", ".join(f"({code})" for code in REFUSED)) == [[text] * 3 for text in said]


def test_a_refusal_is_an_error_with_the_name_and_code_of_the_platform_and_starts_in_the_program(v8: PlainV8) -> None:
    error = """() => {
      try { (function mine() { structuredClone([() => {}]); })(); } catch (e) {
        const where = e.stack.split('\\n')[1].trim().split(' ')[1];
        return [e instanceof Error, e.name, e.code, where, 'DOMException' in globalThis];
      }
    }"""
    assert v8(error) == [True, "DataCloneError", 25, "mine", False]


def test_a_buffer_that_is_transferred_moves_with_its_views(v8: PlainV8) -> None:
    move = """(_, caught) => {
      const b = Uint8Array.of(1, 2, 3).buffer, view = new Uint8Array(b, 1);
      const r = new ArrayBuffer(4, { maxByteLength: 8 });
      const x = structuredClone({ b, view, r }, { transfer: new Set([b, r]) }), unused = new ArrayBuffer(4);
      structuredClone(1, { transfer: [unused] });
      return [[...new Uint8Array(x.b)], [...x.view], x.view.buffer === x.b, x.r.byteLength, x.r.maxByteLength,
        b.detached, r.detached, unused.detached, view.length];
    }"""
    assert v8(move) == [[1, 2, 3], [2, 3], True, 4, 8, True, True, True, 0]


def test_a_transfer_that_fails_leaves_the_buffers_where_they_are(v8: PlainV8) -> None:
    fail = """(_, caught) => {
      const b = new ArrayBuffer(4), c = structuredClone, gone = new ArrayBuffer(1);
      gone.transfer();
      return [caught(() => c({ b, f() {} }, { transfer: [b] })), caught(() => c(b, { transfer: [b, b] })),
        caught(() => c(b, { transfer: [b, {}] })), caught(() => c(b, { transfer: [b, gone] })),
        caught(() => c({ get x() { throw new RangeError('own'); } }, { transfer: [b] })), b.byteLength,
        caught(() => c({ get x() { b.transfer(); return 1; } }, { transfer: [b] })),
        caught(() => c(1, { transfer: 5 })) !== null, caught(() => c(1, 5)), caught(() => c()), c(1, null), c(2, {})];
    }"""
    assert v8(fail) == [
        "DataCloneError: structuredClone: a function cannot be cloned",
        "DataCloneError: structuredClone: an ArrayBuffer that is twice in the transfer list cannot be cloned",
        "DataCloneError: structuredClone: what is no ArrayBuffer, but in the transfer list, cannot be cloned",
        "DataCloneError: structuredClone: a detached ArrayBuffer cannot be cloned",
        "RangeError: own",
        4,
        "DataCloneError: structuredClone: a detached ArrayBuffer cannot be cloned",
        True,
        "TypeError: structuredClone: the options must be an object, such as { transfer: [buffer] }",
        "TypeError: 1 argument required, but only 0 present",
        1,
        2,
    ]


# What makes a view of `b` (8 of at most 16 bytes), and whether it follows its buffer.
VIEWS = {
    "new Uint8Array(b)": True,
    "new Uint8Array(b, 8)": True,
    "new Float64Array(b)": True,
    "new DataView(b, 2)": True,
    "new Uint8Array(b, 0, 8)": False,
    "new Uint8Array(b, 8, 0)": False,
    "new DataView(b, 2, 6)": False,
}


def test_a_view_that_follows_its_buffer_still_does_as_a_clone(v8: PlainV8) -> None:
    grow = """() => [%s].map((view) => {
      const b = new ArrayBuffer(8, { maxByteLength: 16 }), v = view(b), x = structuredClone(v), before = x.byteLength;
      x.buffer.resize(16);
      return [before === v.byteLength, x.byteLength > before, b.byteLength];
    })"""
    assert v8(grow % ", ".join(f"(b) => {code}" for code in VIEWS)) == [
        [True, follows, 8] for follows in VIEWS.values()
    ]


def test_an_empty_view_with_little_room_left_follows_its_buffer_or_does_not(v8: PlainV8) -> None:
    little = """() => [(b) => new Uint8Array(b, 8), (b) => new Uint8Array(b, 8, 0)].map((view) => {
      const x = structuredClone(view(new ArrayBuffer(8, { maxByteLength: 12 })));
      x.buffer.resize(12);
      return [x.length, x.byteOffset];
    })"""
    assert v8(little) == [[4, 8], [0, 8]]


def test_a_full_buffer_is_as_it_was_after_its_views_were_cloned(v8: PlainV8) -> None:
    full = """() => [(b) => new Uint8Array(b), (b) => new Uint8Array(b, 4), (b) => new DataView(b, 4),
      (b) => new Uint8Array(b, 0, 8), (b) => new Uint8Array(b, 8, 0)].map((view) => {
      const b = new ArrayBuffer(8, { maxByteLength: 8 });
      new Uint8Array(b).set([1, 2, 3, 4, 5, 6, 7, 8]);
      const x = structuredClone(view(b)), length = () => { try { return x.byteLength; } catch { return 'out'; } };
      x.buffer.resize(6);
      return [new Uint8Array(b).join(''), length()];
    })"""
    assert v8(full) == [["12345678", 6], ["12345678", 2], ["12345678", 2], ["12345678", 0], ["12345678", 0]]


def test_nesting_beyond_the_stack_is_a_range_error_and_the_realm_goes_on(v8: PlainV8) -> None:
    deep = """(_, caught) => {
      const nest = (wrap) => { let v = 0; for (let i = 0; i < 100000; i++) v = wrap(v); return v; };
      const named = (f) => { try { f(); } catch (e) { return e.name; } };
      const kinds = [(v) => [v], (v) => ({ v }), (v) => new Map([[v, 1]]), (v) => new Set([v]),
        (v) => new Error('', { cause: v })];
      const ends = kinds.map((wrap) => { const v = nest(wrap); return named(() => structuredClone(v)); });
      return [...ends, structuredClone({ a: [new Map([[1, 2]])] }).a[0].get(1)];
    }"""
    assert v8(deep) == ["RangeError"] * 5 + [2]


def test_at_the_end_of_the_stack_a_clone_is_whole_or_a_range_error(v8: PlainV8) -> None:
    """Reading a slot can overflow too, and must not pass for a slot that is not there."""
    dive = """() => {
      const given = [new Map([[1, 2]]), new Date(5), [Object(1)]], ends = new Set();
      let tries = 1500;
      const check = ([map, date, list]) => map.get(1) === 2 && date.getTime() === 5 && list[0].valueOf() === 1;
      const dive = () => {
        try { dive(); } catch { /* the bottom: each frame above tries from a little higher */ }
        if (tries-- <= 0) return;
        try { ends.add(check(structuredClone(given))); } catch (e) { ends.add(e.name); }
      };
      dive();
      return [...ends].sort();
    }"""
    assert v8(dive) == ["RangeError", True]
