"""What every agent loop shares, without any vendor: the code tool, direct calls, pauses, bounds, names, schemas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import Approve, Deny, Executor, Policy, StateError, Tool, ToolError, ask
from bridge.anthropic.schemas import input_schema
from bridge.bounds import Bounds
from bridge.code_tool import SCHEMA, CodeTool, ModelCall, RepeatedFailure, read_arguments, vendor_names
from bridge.direct import ToolCall, start
from bridge.errors import CatalogError
from bridge.loop import Answered
from bridge.offers import chosen, offered
from bridge.tools import Catalog
from sandbox import Limits, Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_rules import circular

pytestmark = pytest.mark.anyio


@pytest.fixture
def tools() -> Tools:
    tools = Tools()
    tools.go.set()
    return tools


# ---- programs in calls -----------------------------------------------------------------------------------------------


def test_the_program_is_the_first_property() -> None:
    assert list(SCHEMA["properties"]) == ["program"]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"program": "return 1"}', {"program": "return 1"}),
        ('{"program": "const a = 1;\nreturn a"}', {"program": "const a = 1;\nreturn a"}),  # a line end as it is
        ("", {}),
        (None, {}),
        ({"program": 1}, {"program": 1}),
    ],
)
def test_arguments_are_read_from_text_and_from_data(arguments: Any, value: Any) -> None:
    assert read_arguments(ModelCall(id="1", name="run_program", arguments=arguments)) == value


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"program": "return', "line 1, column 13: Unterminated string starting at"),
        ("return 1", "line 1, column 1: Expecting value"),
        ('{"a": 1} {"b": 2}', "line 1, column 10: Extra data"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5_000, "a number has too many digits"),
    ],
)
def test_text_that_is_no_json_is_told_with_its_place(arguments: str, why: str) -> None:
    with pytest.raises(ToolError) as refused:
        read_arguments(ModelCall(id="1", name="run_program", arguments=arguments))
    assert refused.value.code == "invalid_arguments"
    assert refused.value.message == (
        f"the arguments of run_program are no JSON ({why}); send them again, complete, as one JSON object"
    )


async def test_raw_text_is_the_program_itself(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        step = await CodeTool(executor).answer([ModelCall(id="1", name="run_program", program='return "{"')])
    assert [answer.text for answer in step.answers] == ["[sandbridge] completed\n{"]


async def test_inputs_and_context_reach_programs_and_direct_calls(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        code = CodeTool(executor, direct=True, inputs={"n": 3}, context="tenant")
        calls = [ModelCall(id="1", name="run_program", program="return await tools.write(inputs)")]
        await code.answer([*calls, ModelCall(id="2", name="write", arguments={"n": 4})])
    assert sorted(each["n"] for each in tools.reached) == [3, 4]
    assert [context.caller_context for context in tools.contexts] == ["tenant", "tenant"]


async def test_what_is_offered_stays_the_same_when_the_catalog_changes(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        code = CodeTool(executor, direct=True)
        before = (code.description, code.direct)
        await code.answer([ModelCall(id="1", name="run_program", program="return 1")])
        assert (code.description, code.direct) == before


# ---- pauses ----------------------------------------------------------------------------------------------------------


async def test_answers_find_the_run_that_they_belong_to(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        code = CodeTool(executor, direct=True)
        step = await code.answer(
            [
                ModelCall(id="a", name="run_program", program="return await tools.write({ n: 1 })"),
                ModelCall(id="b", name="run_program", program="return await tools.person({ n: 2 })"),
                ModelCall(id="c", name="write", arguments={"n": 3}),
            ]
        )
        assert step.status == "paused"
        by_argument = {request.arguments["n"]: request.id for request in step.approvals}
        await step.resume({by_argument[3]: Approve(), step.pending[0].id: "Ada"})
        assert [request.arguments for request in step.approvals] == [{"n": 1}]
        with pytest.raises(StateError):
            _ = step.answers
        await step.resume({by_argument[1]: Deny("no")})
    assert [answer.text.split("\n")[-1] for answer in step.answers][1:] == ["Ada", '{"wrote":{"n":3}}']
    assert step.answers[0].failed
    assert [len(code.runs), sorted(step.programs.values())] == [3, ["a", "b"]]


async def test_a_grant_for_the_tool_holds_for_later_direct_calls_and_programs(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        code = CodeTool(executor, direct=True)
        step = await code.answer([ModelCall(id="1", name="write", arguments={"n": 1})])
        await step.resume({step.approvals[0].id: Approve("tool")})
        again = [ModelCall(id="2", name="write", arguments={"n": 2})]
        again.append(ModelCall(id="3", name="run_program", program="return await tools.write({ n: 3 })"))
        assert (await code.answer(again)).status == "finished"


# ---- calls that no program made --------------------------------------------------------------------------------------


async def test_direct_calls_are_checked_coerced_and_accounted_for_like_any_other(tools: Tools, opened: Sandbox) -> None:
    given = [ToolCall("write", {"n": "5"}), ToolCall("write", {"x": 1}), ToolCall("wriet", {}), ToolCall("ids", {})]
    async with Executor(tools.all(), sandbox=opened) as executor:
        direct = await start(executor, given)
        small = await start(executor, [ToolCall("write", {"n": 10**40})], limits=Limits(argument_bytes=20))
        odd = await start(executor, [ToolCall("write", {"n": object()})])
    assert direct.run is not None
    coerced, refused, unknown, large = direct.results()
    assert (coerced.value, coerced.calls[0].arguments) == ({"wrote": {"n": 5}}, {"n": 5})
    assert refused.error is not None
    assert (refused.error.code, refused.calls[0].outcome) == ("invalid_arguments", "invalid")
    assert unknown.error is not None
    assert unknown.error.message == "there is no tool 'wriet'; did you mean write?"
    assert large.value["id"] == "9007199254740993"
    assert [row.tool for row in direct.run.result.calls] == ["write", "write", "ids"]
    [too_much] = small.results()
    assert too_much.error is not None
    assert too_much.error.message.endswith("more than 20 (argument_bytes)")
    assert odd.results()[0].error is not None
    assert odd.run is None


async def test_a_run_of_direct_calls_that_takes_too_long_ends_and_says_so(opened: Sandbox) -> None:
    tools = Tools()
    async with Executor(tools.all(), sandbox=opened) as executor:
        direct = await start(executor, [ToolCall("hang", {})], limits=Limits(wall_s=0.05))
    [result] = direct.results()
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("cancelled", "the run took more than 0.05 s (wall_s)")
    assert tools.cancelled == 1


async def test_tools_of_a_request_stand_beside_those_of_the_executor_or_are_refused(
    tools: Tools, opened: Sandbox
) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        wider = executor.with_tools([Tool(name="theirs")])
        assert "theirs(" in wider.instructions()
        assert "theirs(" not in executor.instructions()
        run = await wider.start("return [await tools.write({ n: 1 }), await tools.theirs({})]")
        assert [call.tool for call in run.pending] == ["theirs"]
        assert (await executor.resume(run.id, {run.pending[0].id: 2})).status == "finished"
        assert run.result is not None
        assert run.result.value == [{"wrote": {"n": 1}}, 2]
        with pytest.raises(CatalogError):
            executor.with_tools([Tool(name="write")])


# ---- bounds ----------------------------------------------------------------------------------------------------------


def failed(message: str) -> Answered:
    return Answered(id="1", name="run_program", text=message, failed=True)


def test_failures_that_differ_in_numbers_only_are_the_same() -> None:
    bounds = Bounds()
    bounds.saw([failed("no row 17 at line 3"), failed("no row 17 at line 3"), failed("no row 17 at line 3")], None)
    bounds.saw([failed("something else")], None)
    bounds.saw([failed("no row 4 at line 22"), failed("something else")], None)
    with pytest.raises(RepeatedFailure) as ended:
        bounds.saw([failed("no row 99 at line 1")], "the reply")
    assert ended.value.reply == "the reply"
    assert str(ended.value).split("\n") == [
        "the model failed 3 times in the same way:",
        "1. no row 17 at line 3",
        "2. no row 4 at line 22",
        "3. no row 99 at line 1",
    ]


# ---- names and schemas -----------------------------------------------------------------------------------------------


@given(st.lists(st.text(min_size=1, max_size=90), unique=True, max_size=8))
def test_names_fit_every_vendor_and_are_one_to_one(names: list[str]) -> None:
    found = vendor_names(names, ["run_program"])
    assert list(found) == names
    assert len({*found.values(), "run_program"}) == len(names) + 1
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", alias) for alias in found.values())
    assert all(found[name] == name for name in names if re.fullmatch(r"[a-z]{1,9}", name))


def test_a_tool_whose_argument_is_no_object_is_wrapped_and_its_references_hold() -> None:
    tree = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}
    [tool] = offered(chosen(Catalog([Tool(name="tree", input_schema=tree)]), True))
    check = jsonschema_rs.validator_for(dict(tool.schema))
    assert [check.is_valid({"value": value}) for value in ([[], [[]]], [1], 2)] == [True, False, False]
    assert (tool.arguments({"value": [[]]}), tool.arguments([[]])) == ([[]], [[]])


LEAVES: Sequence[dict[str, Any]] = [
    {"type": "string"},
    {"type": "integer"},
    {"$ref": "#/$defs/text"},
    {"$ref": "#/$defs/node"},
    {"type": "array", "items": {"$ref": "#/$defs/node"}},
]
DEFINITIONS = {
    "text": {"type": "string"},
    "node": {"type": "object", "properties": {"a": {"$ref": "#/$defs/text"}, "b": {"$ref": "#/$defs/node"}}},
}
objects = st.builds(
    lambda properties, required, closed: {
        "type": "object",
        "properties": properties,
        "required": [name for name in required if name in properties],
        **({"additionalProperties": False} if closed else {}),
    },
    st.dictionaries(st.sampled_from(["a", "b", "$c", "d e"]), st.sampled_from(LEAVES), max_size=3),
    st.lists(st.sampled_from(["a", "b", "$c"]), unique=True, max_size=2),
    st.booleans(),
)
schemas = st.builds(
    lambda base, word, parts: {**base, "$defs": DEFINITIONS, **({word: parts} if word and parts else {})},
    objects,
    st.sampled_from(["", "anyOf", "oneOf", "allOf"]),
    st.lists(objects, max_size=2),
)
values = st.dictionaries(
    st.sampled_from(["a", "b", "$c", "d e"]),
    st.sampled_from(["x", 1, {}, {"a": "x"}, {"b": {"a": 1}}, [], [{"a": "x"}]]),
    max_size=3,
)


@settings(max_examples=200, deadline=None)
@given(schema=schemas, value=values, acyclic=st.booleans())
def test_a_declaration_never_refuses_what_the_gate_would_let_through(
    schema: dict[str, Any], value: Any, acyclic: bool
) -> None:
    made, _ = input_schema(schema, acyclic=acyclic)
    assert made["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf"} & set(made)
    assert not (acyclic and circular(made))
    if jsonschema_rs.validator_for(schema).is_valid(value):
        assert jsonschema_rs.validator_for(made).is_valid(value)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ('{"n": NaN}', "arguments.n is NaN"),
        ('{"n": [1, {"m": 1e999}]}', "arguments.n[1].m is Infinity"),
        ({"n": float("-inf")}, "arguments.n is -Infinity"),
    ],
)
async def test_a_number_that_json_cannot_say_reaches_no_tool_by_a_direct_call_either(
    tools: Tools, opened: Sandbox, arguments: Any, path: str
) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        code = CodeTool(executor, direct=["read"])
        [answer] = (await code.answer([ModelCall(id="1", name="read", arguments=arguments)])).answers
    said = f"[sandbridge] error invalid_arguments: read: {path}, which JSON cannot say: send a finite number or null"
    assert (answer.text, answer.failed, tools.reached) == (said, True, [])
