"""bfcl: call strings as calls, replies as references, states as digests. The classes here are made up."""

from __future__ import annotations

from typing import Any

from bridge.bench.tasks import Call
from bridge.bench.workloads import bfcl


class Shelf:
    def __init__(self) -> None:
        self.books: dict[str, int] = {}
        self._private = object()
        self.parent: Any = self

    def add(self, title: str, copies: int = 1) -> dict[str, Any]:
        self.books[title] = copies
        return {"books": self.books, "added": {"title": title}}


def world() -> Any:
    made: Any = object.__new__(bfcl.World)
    shelf = Shelf()
    made.instances, made.methods = {"Shelf": shelf}, {"add": shelf.add}
    return made


def test_a_call_string_is_read_and_not_executed() -> None:
    signatures = {"add": ["title", "copies"]}
    assert bfcl._call("add('a', 2)", signatures) == Call("add", {"title": "a", "copies": 2})
    assert bfcl._call("add(title='it\\'s',copies=-1)", signatures) == Call("add", {"title": "it's", "copies": -1})
    assert bfcl._call("add([1, {'k': None}])", signatures) == Call("add", {"title": [1, {"k": None}]})


def test_a_reply_is_a_copy_that_later_calls_do_not_change() -> None:
    made = world()
    first = made.call(Call("add", {"title": "a"}))
    made.call(Call("add", {"title": "b"}))
    assert first == {"books": {"a": 1}, "added": {"title": "a"}}


def test_a_state_is_all_that_is_public_whatever_led_to_it() -> None:
    one, other = world(), world()
    for title in ("a", "b"):
        one.call(Call("add", {"title": title}))
    for title in ("b", "a"):
        other.call(Call("add", {"title": title}))
    assert one.digest() == other.digest()
    other.call(Call("add", {"title": "a", "copies": 1.0}))
    assert one.digest() == other.digest()  # 1.0 is 1 where it went through JSON
    other.call(Call("add", {"title": "a", "copies": 2}))
    assert one.digest() != other.digest()


def test_an_argument_that_an_earlier_reply_has_and_the_user_has_not_becomes_a_reference() -> None:
    replies = [{"id": 4711, "items": [{"key-1": "abc"}]}, None]
    calls = [
        Call("look", {"name": "Ada"}),
        Call("open", {"id": 4711, "key": "abc", "name": "Ada", "yes": True, "n": 1}),
    ]
    assert bfcl._program(calls, replies, "Look for ada") == [
        'const r1 = await tools.look({ name: "Ada" });',
        'const r2 = await tools.open({ id: r1.id, key: r1.items[0]["key-1"], name: "Ada", yes: true, n: 1 });',
    ]
    assert "id: 4711" in bfcl._program(calls, replies, "Open 4711")[1]


def test_schemas_get_the_type_names_of_json_schema() -> None:
    theirs = {
        "type": "dict",
        "properties": {
            "type": {"type": "string"},
            "size": {"type": "float", "optional": True},
            "pair": {"type": "tuple", "items": {"type": "any", "description": "d"}},
        },
        "required": ["type"],
    }
    assert bfcl._schema(theirs) == {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "size": {"type": "number"},
            "pair": {"type": "array", "items": {"description": "d"}},
        },
        "required": ["type"],
    }
