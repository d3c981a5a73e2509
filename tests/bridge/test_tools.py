"""Tools, their names in JavaScript, and what stops a catalog from being built."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import CatalogError
from bridge.names import LOOKED_UP, RESERVED_WORDS, identifier
from bridge.tools import Catalog, Tool, tool
from sandbox import ToolName


def on(server: str, *names: str) -> list[Tool]:
    return [Tool(name=name, server=server) for name in names]


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(CatalogError) as caught:
        Catalog(*arguments, **options)
    return str(caught.value)


# ---- one tool ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": ""}, "tool name '' must be a text of 1 to 128 characters"),
        ({"name": 5}, "tool name 5 must be a text of 1 to 128 characters"),
        ({"name": "x" * 129}, f"tool name '{'x' * 40}…' has 129 characters, over 128"),
        ({"name": "a\nb"}, "tool name 'a\\nb' has an invisible character (U+000A): remove it"),
        ({"name": "pay\u200b"}, "tool name 'pay\\u200b' has an invisible character (U+200B): remove it"),
        ({"name": "a", "server": "x/y"}, "server name 'x/y' has a '/', which divides server and tool: rename it"),
        (
            {"name": "a", "input_schema": "object"},
            "tool 'a': input_schema must be a JSON Schema (an object, true or false), not str",
        ),
        (
            {"name": "a", "input_schema": None},
            "tool 'a': input_schema must be a JSON Schema (an object, true or false), not NoneType",
        ),
        (
            {"name": "a", "output_schema": ["string"]},
            "tool 'a': output_schema must be a JSON Schema (an object, true or false), not list",
        ),
        ({"name": "a", "input_schema": {"enum": [{1}]}}, "tool 'a': input_schema holds a set, which is no JSON"),
        ({"name": "a", "input_schema": {1: 2}}, "tool 'a': input_schema has the key 1, which is no text"),
        ({"name": "a", "callers": []}, "tool 'a': callers must be some of ['direct', 'programmatic'], not []"),
        (
            {"name": "a", "callers": ["model"]},
            "tool 'a': callers must be some of ['direct', 'programmatic'], not ['model']",
        ),
        ({"name": "a", "timeout_s": 0}, "tool 'a': timeout_s must be positive and finite, not 0"),
        ({"name": "a", "timeout_s": float("inf")}, "tool 'a': timeout_s must be positive and finite, not inf"),
        ({"name": "a", "handler": 5}, "tool 'a': handler must be an async function of (arguments, context), or None"),
        (
            {"name": "a", "require_approval": "maybe"},
            "tool 'a': require_approval must be 'always', 'never' or None, not 'maybe'",
        ),
    ],
)
def test_a_tool_that_cannot_be_used_stops_at_construction(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(CatalogError) as caught:
        Tool(**fields)
    assert str(caught.value) == text


def test_a_schema_that_holds_itself_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"a": schema}
    with pytest.raises(CatalogError) as caught:
        Tool(name="a", input_schema=schema)
    assert str(caught.value) == "tool 'a': input_schema is nested more than 100 levels deep"


def test_a_schema_of_endless_size_is_refused() -> None:
    with pytest.raises(CatalogError) as caught:
        Tool(name="a", input_schema={"enum": list(range(20_001))})
    assert str(caught.value) == "tool 'a': input_schema has more than 20,000 values in it"


def test_a_later_change_to_the_callers_schema_changes_no_tool() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    made = Tool(name="a", input_schema=schema)
    before = made.digest
    schema["properties"]["a"]["type"] = "integer"
    assert made.input_schema == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert Tool(name="a", input_schema=made.input_schema).digest == before


@pytest.mark.parametrize(
    "other",
    [{"description": "x"}, {"title": "x"}, {"input_schema": True}, {"output_schema": {}}, {"name": "b"}],
)
def test_any_change_of_a_definition_changes_its_digest(other: dict[str, Any]) -> None:
    assert Tool(name="a").digest != Tool(**{"name": "a", **other}).digest


def test_only_an_output_schema_that_says_so_wraps_its_result() -> None:
    wrapped = {"type": "object", "properties": {"result": {"type": "integer"}}, "x-fastmcp-wrap-result": True}
    plain = {"type": "object", "properties": {"result": {"type": "integer"}}}
    broken = {"type": "object", "x-fastmcp-wrap-result": True}
    made = [Tool(name="a", output_schema=schema).wraps_result for schema in (wrapped, plain, broken, True, None)]
    assert made == [True, False, False, False, False]


# ---- the decorator ----------------------------------------------------------------------------------------------


def test_a_decorated_function_is_a_tool_that_can_still_be_called() -> None:
    @tool
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    assert isinstance(double, Tool)
    assert (double.name, double.description, double(4)) == ("double", "Twice as much.", 8)


def test_decorator_options_become_fields() -> None:
    @tool(
        name="look-up",
        title="Look up",
        description="Finds.",
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
        callers=["direct"],
        defer=True,
        timeout_s=3,
        volatile=True,
        require_approval="always",
        input_schema={"type": "object", "properties": {"q": {}}},
        output_schema=None,
    )
    def look_up(q: str) -> int:
        return 1

    assert (look_up.name, look_up.title, look_up.description) == ("look-up", "Look up", "Finds.")
    hints = look_up.annotations
    assert (hints.read_only, hints.destructive, hints.idempotent, hints.open_world, hints.trusted) == (
        True,
        False,
        True,
        False,
        True,
    )
    assert (look_up.callers, look_up.defer, look_up.timeout_s, look_up.volatile) == (
        frozenset({"direct"}),
        True,
        3,
        True,
    )
    assert look_up.require_approval == "always"
    assert look_up.input_schema == {"type": "object", "properties": {"q": {}}}
    assert look_up.output_schema is None


def test_an_unknown_decorator_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="readonly"):
        tool(lambda: None, name="a", readonly=True)


def test_a_bound_method_becomes_a_tool() -> None:
    class Shop:
        def price(self, item: str) -> float:
            """Price of one."""
            return 2.5

    made = tool(Shop().price)
    assert made.name == "price"
    assert made.input_schema == {
        "type": "object",
        "properties": {"item": {"type": "string"}},
        "required": ["item"],
        "additionalProperties": False,
    }


def test_a_tool_without_a_function_cannot_be_called_in_python() -> None:
    with pytest.raises(TypeError) as caught:
        Tool(name="a")()
    assert str(caught.value) == "tool 'a' was not made from a Python function, so it cannot be called here"


def test_importing_tools_loads_neither_pydantic_nor_the_mcp_sdk() -> None:
    script = (
        "import bridge.tools, bridge.schema, bridge.declarations, sys; print({'pydantic', 'mcp'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"


# ---- identifiers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("get_order", "get_order"),
        ("get-team-members", "get_team_members"),
        ("notion.search", "notion_search"),
        ("a/b c", "a_b_c"),
        ("$x", "$x"),
        ("2fa", "_2fa"),
        ("größe", "gr__e"),
        ("delete", "delete_"),
        ("then", "then_"),
        ("toJSON", "toJSON_"),
        ("constructor", "constructor_"),
        ("__proto__", "__proto___"),
        ("\u0665x", "_x"),  # an Arabic digit is no digit of JavaScript
    ],
)
def test_a_name_becomes_an_identifier(name: str, alias: str) -> None:
    assert identifier(name) == alias


@given(st.text(min_size=1, max_size=20))
def test_every_name_becomes_an_identifier_that_no_language_rule_reads(name: str) -> None:
    alias = identifier(name)
    assert re.fullmatch(r"[A-Za-z_$][A-Za-z0-9_$]*", alias, re.ASCII)
    assert alias not in RESERVED_WORDS | LOOKED_UP


visible_names = st.text(st.sampled_from("ab_-. 1"), min_size=1, max_size=4).filter(str.strip)


@given(st.lists(visible_names, unique=True, max_size=12), st.randoms())
def test_no_two_tools_of_a_server_share_an_identifier_whatever_their_order(names: list[str], random: Any) -> None:
    catalog = Catalog(on("s", *names))
    paths = [entry.path for entry in catalog.entries]
    assert len(set(paths)) == len(names)
    random.shuffle(names)
    again = {entry.name: entry.path for entry in Catalog(on("s", *names)).entries}
    assert again == {entry.name: entry.path for entry in catalog.entries}


# ---- the catalog ------------------------------------------------------------------------------------------------


def test_entries_keep_their_order_and_have_exact_names_and_paths() -> None:
    def plain() -> None: ...

    catalog = Catalog([*on("git-hub", "b", "a-c"), plain, Tool(name="x")], servers=["late"])
    assert [(entry.name, entry.path, entry.expression) for entry in catalog.entries] == [
        ("git-hub/b", ("git_hub", "b"), "git_hub.b"),
        ("git-hub/a-c", ("git_hub", "a_c"), "git_hub.a_c"),
        ("plain", ("plain",), "plain"),
        ("x", ("x",), "x"),
    ]
    assert catalog.lookup("git-hub/a-c") is catalog.entries[1]
    assert catalog.lookup("a-c") is None
    assert catalog.warnings == ()


def test_the_realm_has_what_programs_may_call_deferred_tools_included() -> None:
    catalog = Catalog(
        [
            Tool(name="a"),
            Tool(name="b", callers=frozenset({"direct"})),
            Tool(name="c", defer=True),
            Tool(name="d", server="s", callers=frozenset({"programmatic"})),
        ]
    )
    assert catalog.realm_names() == [ToolName("a", ("a",)), ToolName("c", ("c",)), ToolName("s/d", ("s", "d"))]


def test_what_is_no_tool_stops_construction() -> None:
    assert refusal(["get_order"]) == "'get_order' is no tool: give a Tool or a Python function"


def test_two_client_functions_that_would_share_a_name_are_both_named() -> None:
    text = refusal([Tool(name="get-order"), Tool(name="get_order")])
    assert text == "tool 'get-order' and tool 'get_order' would both be tools.get_order in a program: rename one"


def test_two_functions_of_one_name_are_told_apart_by_where_they_are() -> None:
    def first() -> None: ...

    def second() -> None: ...

    text = refusal([tool(first, name="x"), tool(second, name="x")])
    place = f"{__name__}.test_two_functions_of_one_name_are_told_apart_by_where_they_are.<locals>"
    assert text == (f"tool 'x' ({place}.first) and tool 'x' ({place}.second) have the same name 'x': rename one")


def test_a_server_and_a_client_function_that_would_share_a_name_stop_construction() -> None:
    text = "server 'mail' and tool 'mail' would both be tools.mail in a program: rename one"
    assert refusal([Tool(name="mail"), *on("mail", "send")]) == text
    assert refusal([Tool(name="mail")], servers=["mail"]) == text


def test_two_servers_that_would_share_a_name_stop_construction() -> None:
    text = refusal([*on("my-mail", "send")], servers=["my_mail"])
    assert text == "server 'my_mail' and server 'my-mail' would both be tools.my_mail in a program: rename one"


def test_a_client_function_may_not_have_the_exact_name_of_a_servers_tool() -> None:
    text = refusal([*on("mail", "send"), Tool(name="mail/send")])
    assert text == ("tool 'send' of server 'mail' and tool 'mail/send' have the same name 'mail/send': rename one")


def test_one_tool_name_on_two_servers_is_no_collision() -> None:
    catalog = Catalog([*on("a", "send_email"), *on("b", "send_email"), Tool(name="send_email")])
    assert [entry.expression for entry in catalog.entries] == ["a.send_email", "b.send_email", "send_email"]
    assert catalog.warnings == ()


def test_tools_of_a_server_that_collide_all_get_a_suffix_and_a_warning() -> None:
    catalog = Catalog(on("s", "get-order", "get_order", "other"))
    assert [entry.expression for entry in catalog.entries] == ["s.get_order_d68131", "s.get_order_1c41db", "s.other"]
    said = "server 's' has tools whose names meet in tools.s.get_order: "
    said += "'get-order' is tools.s.get_order_d68131, 'get_order' is tools.s.get_order_1c41db"
    assert catalog.warnings == (said,)


def test_a_suffix_never_meets_another_tools_name() -> None:
    first = Catalog(on("s", "a-b", "a_b")).entries[0].path[1]
    catalog = Catalog(on("s", "a-b", "a_b", first))
    assert len({entry.path for entry in catalog.entries}) == 3
    assert catalog.entries[2].path == ("s", first)


def test_a_tool_that_a_server_lists_twice_is_used_once_with_a_warning() -> None:
    catalog = Catalog([Tool(name="a", server="s", description="first"), Tool(name="a", server="s")])
    assert [entry.tool.description for entry in catalog.entries] == ["first"]
    assert catalog.warnings == ("server 's' lists the tool 'a' more than once: only the first is used",)


def test_the_digest_of_a_catalog_changes_with_order_callers_and_definitions() -> None:
    a, b = Tool(name="a"), Tool(name="b")
    digests = {
        Catalog([a, b]).digest,
        Catalog([b, a]).digest,
        Catalog([a]).digest,
        Catalog([a, Tool(name="b", callers=frozenset({"direct"}))]).digest,
        Catalog([a, Tool(name="b", defer=True)]).digest,
        Catalog([a, Tool(name="b", description="x")]).digest,
    }
    assert len(digests) == 6
    assert Catalog([Tool(name="a"), Tool(name="b")]).digest == Catalog([a, b]).digest
