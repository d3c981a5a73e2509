"""Where keys stand in TOML and JSON files."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.lines import json_lines, line_of, toml_lines

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
PLAIN = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.text(st.characters(codec="utf-8"), max_size=8))
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path} | {found for key, part in items for found in _paths(part, (*path, key))}


def _basic(text: str) -> str:
    """A TOML basic string: as JSON's, but that DEL is escaped too, and no pair of surrogates is written."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _basic(value)
        case dict():
            return "{ " + ", ".join(f"{_basic(key)} = {_toml(part)}" for key, part in value.items()) + " }"
        case list():
            return "[" + "".join(f"\n  {_toml(part)}, # ] comma" for part in value) + "\n]"
        case _:
            return str(value)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_every_key_and_item_of_a_toml_file_has_a_line(data: dict[str, Any]):
    text = "".join(f"{_basic(key)} = {_toml(part)}\n" for key, part in data.items())
    assert tomllib.loads(text) == data
    lines = toml_lines(text)
    assert set(lines) == _paths(data) - {()}
    begins = 1
    for key, part in data.items():
        assert lines[(key,)] == begins
        begins += _toml(part).count("\n") + 1


@given(VALUES)
def test_every_key_and_item_of_a_json_file_has_a_line(data: Any):
    text = json.dumps(data, indent=1, ensure_ascii=False)
    lines, twice = json_lines(text)
    assert (set(lines), twice) == (_paths(data) - {()}, [])
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


def test_tables_and_arrays_of_tables_have_the_lines_of_their_headers():
    text = '\n[a]\nb.c = 1\n[[a.d]]\ne = """\n]\n"""\n[[a.d]]\n[a.d.f]\n\'g h\' = { i = [ { j = 1979-05-27 } ] }\n'
    tomllib.loads(text)
    assert toml_lines(text) == {
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "b", "c"): 3,
        ("a", "d"): 4,
        ("a", "d", 0): 4,
        ("a", "d", 0, "e"): 5,
        ("a", "d", 1): 8,
        ("a", "d", 1, "f"): 9,
        ("a", "d", 1, "f", "g h"): 10,
        ("a", "d", 1, "f", "g h", "i"): 10,
        ("a", "d", 1, "f", "g h", "i", 0): 10,
        ("a", "d", 1, "f", "g h", "i", 0, "j"): 10,
    }


def test_the_line_of_what_is_not_there_is_that_of_what_holds_it():
    assert [line_of({("a",): 3}, path) for path in (("a", "b", 0), ("c",), ())] == [3, 1, 1]
