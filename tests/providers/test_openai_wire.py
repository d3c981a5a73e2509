"""The server that the loops are held against is as strict as it says: each of these is refused, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.providers import openai_rules as rules
from tests.providers.openai_rules import Refused
from tests.providers.openai_types import Mismatch
from tests.providers.openai_wire import (
    Wire,
    called_by,
    calls,
    chat_calls,
    chat_says,
    program,
    program_output,
    says,
    thinks,
)

HOSTED = {"type": "programmatic_tool_calling"}
EMPTY = {"type": "object", "properties": {}}
F = {"type": "function", "name": "f", "parameters": EMPTY, "strict": False, "allowed_callers": ["programmatic"]}
HI = {"role": "user", "content": "hi"}
SEALED = ["reasoning.encrypted_content"]


def ask(wire: Wire, *items: Any, **more: Any) -> dict[str, Any]:
    return wire.respond({"model": "m", "input": list(items), "tools": [F, HOSTED]} | more)


def output(number: int = 1, **more: Any) -> Any:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": "1"} | more


def refused(wire: Wire, said: str, *items: Any, **more: Any) -> None:
    wire.turns[:] = [[says("x")]]
    with pytest.raises((Refused, Mismatch), match=said):
        ask(wire, *items, **more)


def test_a_call_without_an_output_an_output_without_a_call_and_one_given_twice(wire: Wire) -> None:
    call = calls("f", {})
    refused(wire, "No tool output found for function call call_1", HI, call)
    refused(wire, "No tool call found for function call output with call_id call_1", HI, output())
    refused(wire, "Duplicate tool output for call_id call_1", HI, call, output(), output())
    custom = output() | {"type": "custom_tool_call_output"}
    refused(wire, "No tool call found for custom tool call output", HI, call, custom)
    refused(wire, "No tool call found", HI, output(), call)


def test_a_caller_that_was_not_echoed_and_one_whose_program_is_not_there_or_has_ended(wire: Wire) -> None:
    nested = calls("f", {}, **called_by())
    refused(wire, "The caller of call call_1 was not echoed", HI, program("x"), nested, output())
    refused(wire, "No program found for caller call_prog_1", HI, nested, output(**called_by()))
    ended = [program("x"), program_output("1"), nested, output(**called_by())]
    refused(wire, "The program of caller call_prog_1 has ended", HI, *ended)
    refused(wire, "No open program for program output", HI, program_output("1"))
    refused(wire, "A program needs the programmatic_tool_calling tool", HI, program("x"), tools=[])


def test_fields_that_the_sdk_does_not_know_and_those_that_are_missing(wire: Wire) -> None:
    refused(wire, r"input\[1\]\.is_error: unknown field of FunctionCallOutput", HI, output(is_error=True))
    refused(wire, r"input\[1\]\.output: missing", HI, {"type": "function_call_output", "call_id": "c"})
    refused(wire, r"^\.temperatur: unknown field", HI, temperatur=1)
    refused(wire, "Previous response with id 'r' not found", HI, previous_response_id="r")


def test_a_history_without_storage_that_is_not_whole_in_order_and_unchanged(wire: Wire) -> None:
    wire.play([thinks(), program("x"), calls("f", {}, **called_by())])
    first = ask(wire, HI, store=False, include=SEALED)["output"]
    thought, code, call = first
    back = output(**called_by())
    stateless = {"store": False, "include": SEALED}
    refused(wire, "program .* is missing or out of order", HI, thought, call, code, back, **stateless)
    refused(wire, "reasoning .* is missing|without what came before", HI, code, call, back, **stateless)
    refused(wire, "is missing at the end", HI, thought, code, **stateless)
    refused(wire, "program .* was changed", HI, thought, code | {"fingerprint": "other"}, call, back, **stateless)
    refused(wire, "function_call .* was changed", HI, thought, code, call | {"arguments": "[]"}, back, **stateless)
    refused(wire, "program .* was not issued here", HI, program("y", 9), **stateless)
    bare = {name: part for name, part in thought.items() if name != "encrypted_content"}
    refused(wire, "was changed|not found", HI, bare, code, call, back, **stateless)
    wire.turns[:] = [[program_output("1"), says("ok")]]
    ask(wire, HI, thought, code, call, back, **stateless)


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ({"name": "a/b"}, "Invalid 'tools"),
        ({"name": "x" * 65}, "Invalid 'tools"),
        ({"parameters": {}}, "schema must be a JSON Schema of 'type: object'"),
        ({"parameters": {"type": "object"}}, "object schema missing properties"),
        ({"parameters": EMPTY | {"properties": {"a": {"type": "array"}}}}, "array schema missing items"),
        ({"parameters": EMPTY | {"properties": {"a": {"$ref": "https://x"}}}}, "reference"),
        ({"strict": True}, "'additionalProperties' is required"),
        ({"allowed_callers": []}, "must be non-empty"),
        ({"allowed_callers": ["direct"]}, "needs at least one tool that programs may call"),
    ],
)
def test_tools_that_cannot_be_offered(wire: Wire, tool: Any, said: str) -> None:
    refused(wire, said, HI, tools=[F | tool, HOSTED])


def test_two_tools_of_one_name_and_programs_without_the_tool_that_runs_them(wire: Wire) -> None:
    refused(wire, "Tool names must be unique", HI, tools=[F, F, HOSTED])
    refused(wire, "programmatic callers need the programmatic_tool_calling tool", HI, tools=[F])
    refused(wire, "not found in 'tools'", HI, tool_choice={"type": "function", "name": "g"})


def test_messages_of_tools_that_nobody_called_and_calls_that_nobody_answered() -> None:
    asked = chat_says(None, chat_calls("f", {}))
    back = {"role": "tool", "tool_call_id": "call_1", "content": "1"}
    rules.check_messages([HI, asked, back])
    for messages, said in (
        ([HI, asked], "did not have response messages: call_1"),
        ([HI, asked, HI, back], "must be followed by tool messages"),
        ([HI, back], "must be a response to a preceding message"),
        ([HI, asked, back, back], "must be a response to a preceding message"),
        ([HI, chat_says(None, chat_calls("f", {}), chat_calls("g", {})), back], "must be unique"),
        ([HI, {"role": "assistant", "content": None}], "content is required"),
    ):
        with pytest.raises(Refused, match=said):
            rules.check_messages(messages)
