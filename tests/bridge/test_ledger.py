"""The ledger: what a program put into the context, against what direct parallel calls would have put there."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from typing import Any

import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import Executor, Result, Tool, tokens
from bridge.code_tool import SCHEMA, SHORT
from bridge.declarations import instructions
from bridge.ledger import (
    Count,
    Ledger,
    Levels,
    Side,
    ToolCount,
    Traffic,
    account,
    call_item,
    program_item,
    result_item,
    shown,
    tool_item,
)
from bridge.results import CallRow
from bridge.tools import Catalog
from sandbox import Sandbox

ECHO = Tool(name="echo", description="Gives back.", input_schema={"type": "object"})
IDLE = Tool(name="idle", description="Never called.", input_schema={"type": "object"})


def row(number: int = 1, tool: str = "echo", **changes: Any) -> CallRow:
    made = CallRow(id=f"r.{number}", tool=tool, arguments={"n": number}, decision="allow", outcome="completed")
    return dataclasses.replace(made, **changes)


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has loaded the tokens."""
    monkeypatch.setattr(tokens, "_tokens", None)


# ---- the items


def test_the_items_are_those_of_the_responses_format() -> None:
    assert json.loads(call_item("echo", '{"a":1}')) == {
        "type": "function_call",
        "call_id": "call_00000000",
        "name": "echo",
        "arguments": '{"a":1}',
    }
    assert json.loads(result_item("é")) == {
        "type": "function_call_output",
        "call_id": "call_00000000",
        "output": "é",
    }
    assert json.loads(json.loads(program_item("return 1"))["arguments"]) == {"program": "return 1"}
    assert json.loads(tool_item("echo", "d", {"type": "object"})) == {
        "type": "function",
        "name": "echo",
        "description": "d",
        "parameters": {"type": "object"},
    }


@pytest.mark.parametrize(
    ("reply", "cap", "text"),
    [
        (b'{"a":1}', 100, '{"a":1}'),
        (b'"a\\nb"', 100, "a\nb"),
        (b"[1,2,3]", 3, "[1,"),
        ('"éé"'.encode(), 3, "é"),
        (b'"' + b"x" * 100 + b'"', 10, '"' + "x" * 9),
    ],
)
def test_a_reply_is_shown_as_text_up_to_the_cap(reply: bytes, cap: int, text: str) -> None:
    assert shown(reply, cap) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@given(
    name=st.text(max_size=12),
    arguments=JSON,
    reply=JSON,
    cap=st.integers(1, 80),
    indent=st.sampled_from([None, 1, "\t"]),
    plain=st.booleans(),
)
@settings(deadline=None)
def test_sizes_are_those_of_the_items_that_are_not_made(
    name: str, arguments: Any, reply: Any, cap: int, indent: Any, plain: bool
) -> None:
    text = json.dumps(reply, indent=indent, ensure_ascii=plain).encode("utf-8", "replace")
    made = row(tool=name, arguments=arguments)
    count = account([made], "", "", Traffic(replies={made.id: text}, cap_bytes=cap)).in_bytes.by_tool[name]
    written = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    call = call_item(name.replace("/", "__").replace(".", "_"), msgspec.json.encode(json.loads(written)).decode())
    assert count.arguments == len(call.encode("utf-8", "replace"))
    assert count.replies == len(result_item(shown(text, cap)).encode("utf-8", "replace"))


# ---- levels


def test_calls_of_one_wave_are_of_one_level_and_a_chain_takes_one_each() -> None:
    levels = Levels()
    levels.made([1, 2])
    levels.delivered([1, 2])
    levels.made([3])
    levels.delivered([3])
    levels.made([4])
    assert levels.of == {1: 1, 2: 1, 3: 2, 4: 3}


def test_chains_beside_each_other_take_no_more_levels_than_the_longest() -> None:
    levels = Levels()
    levels.made([1, 2, 3])
    for first, second in ((2, 4), (1, 5), (3, 6)):
        levels.delivered([first])
        levels.made([second])
    assert levels.of == {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2}


def test_of_replies_that_come_together_the_lowest_level_counts() -> None:
    levels = Levels()
    levels.made([1, 2])
    levels.delivered([1])
    levels.made([3])
    levels.delivered([2, 3])
    levels.made([4])
    assert levels.of[4] == 2


def test_a_timer_is_no_level() -> None:
    levels = Levels()
    levels.made([1])
    levels.delivered([1])
    levels.delivered([99])  # of a timer
    levels.made([2])
    assert levels.of[2] == 2


# ---- the count


@pytest.mark.usefixtures("untold")
def test_every_request_of_the_direct_side_holds_all_that_came_before_it() -> None:
    catalog = Catalog([ECHO, IDLE])
    rows = [row(1), row(2), row(3)]
    replies = {"r.1": b'"one"', "r.2": b'{"two":2}', "r.3": b"3"}
    traffic = Traffic(catalog=catalog, replies=replies, levels={"r.1": 1, "r.2": 1, "r.3": 4})
    count = account(rows, "return 1", "text", traffic).in_bytes

    tools = [tool_item(each.name, each.description, {"type": "object"}) for each in (ECHO, IDLE)]
    calls = [call_item("echo", f'{{"n":{n}}}') for n in (1, 2, 3)]
    results = [result_item(text) for text in ("one", '{"two":2}', "3")]
    code_tool = tool_item("run_program", f"{SHORT}\n\n{instructions(catalog)}", SCHEMA)
    code, text = program_item("return 1"), result_item("text")
    bodies = [tools, tools + calls[:2] + results[:2], tools + calls + results]
    direct = sum(map(len, [item for body in bodies for item in body] + calls))
    program = sum(map(len, [code_tool, code, code_tool, code, text]))

    once = [sum(map(len, part)) for part in (tools, calls, results)]
    assert count.direct == Side(
        requests=3,
        definitions=once[0],
        calls=once[1],
        results=once[2],
        resent=direct - sum(once),
        total=direct,
    )
    assert count.program == Side(
        requests=2,
        definitions=len(code_tool),
        calls=len(code),
        results=len(text),
        resent=len(code_tool) + len(code),
        total=program,
    )
    assert count.saved == direct - program
    assert count.by_tool == {
        "echo": ToolCount(
            calls=3,
            arguments=once[1],
            replies=once[2],
            definition=len(tools[0]),
            total=direct - 3 * len(tools[1]),
        )
    }


def test_tokens_are_counted_by_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = tokens.load()
    traffic = Traffic(catalog=Catalog([ECHO]), replies={"r.1": b'"one two three"'})
    ledger = account([row(1)], "return 1", "text", traffic)
    bytes_, count = ledger.in_bytes, ledger.in_tokens
    assert count is not None
    assert count.direct.results == counter.count(result_item("one two three"))
    assert count.direct.calls == counter.count(call_item("echo", '{"n":1}'))
    assert count.program.calls == counter.count(program_item("return 1"))
    assert (count.direct.requests, count.by_tool["echo"].calls) == (bytes_.direct.requests, 1)
    assert count.direct.total == 2 * (count.direct.definitions + count.direct.calls) + count.direct.results


@pytest.mark.usefixtures("untold")
def test_tokens_are_none_where_nobody_has_loaded_them() -> None:
    ledger = account([row()], "", "")
    tokens.load()
    assert ledger.in_tokens is None  # its texts were not kept


@pytest.mark.usefixtures("untold")
def test_a_reply_over_the_cap_counts_as_much_as_the_program_could_have_shown() -> None:
    whole = account([row()], "", "", Traffic(replies={"r.1": b"[" + b"1," * 5000 + b"1]"}, cap_bytes=1000))
    assert whole.in_bytes.direct.results == len(result_item("x" * 1000))


@pytest.mark.usefixtures("untold")
def test_rows_alone_count_by_the_sizes_that_they_have() -> None:
    count = account([row(reply_bytes=500), row(2, outcome="failed", error="NO: é")], "", "").in_bytes
    assert count.direct.results == len(result_item("")) + 500 + len(result_item("NO: é").encode())
    assert count.direct.requests == 2
    assert count.direct.definitions == count.program.definitions == 0


@pytest.mark.usefixtures("untold")
def test_a_reply_from_an_earlier_run_is_in_that_runs_ledger() -> None:
    assert account([row(reused=True, reply_bytes=9999)], "", "").in_bytes.by_tool == {}


@pytest.mark.usefixtures("untold")
def test_a_loss_is_shown_as_a_loss() -> None:
    ledger = account([], "return 1 + 1", "[sandbridge] completed\n2", Traffic(catalog=Catalog([ECHO])))
    assert ledger.in_bytes.saved < 0
    assert ledger.in_bytes.saved_share < -1
    assert ledger.line().endswith("% MORE")


# ---- as data


def two_counts() -> Ledger:
    tokens.load()
    return account([row()], "return 1", "text", Traffic(catalog=Catalog([ECHO]), replies={"r.1": b"1"}))


def test_the_data_has_both_counts() -> None:
    data = two_counts().to_data()
    assert list(data) == ["in_bytes", "in_tokens"]
    assert list(data["in_bytes"]) == [field.name for field in dataclasses.fields(Count)]
    assert data["in_tokens"]["direct"]["total"] < data["in_bytes"]["direct"]["total"]
    json.dumps(data)


def test_a_ledger_can_be_copied_and_sent_to_another_process() -> None:
    ledger = two_counts()
    for other in (copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
        assert other == ledger
        assert other.line() == ledger.line()
    assert ledger != account([], "", "")


def test_the_line_says_it_in_tokens_where_there_are_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = two_counts()
    assert ledger.in_tokens is not None
    direct, program = ledger.in_tokens.direct.total, ledger.in_tokens.program.total
    share = f"{-ledger.in_tokens.saved_share:.0%}"
    assert ledger.line() == (
        f"context: {program:,} tokens with the program, {direct:,} by direct parallel calls: {share} MORE"
    )
    monkeypatch.setattr(tokens, "_tokens", None)
    line = account([row(reply_bytes=9000)], "x", "y").line()
    assert line == "context: 280 bytes with the program, 9,245 by direct parallel calls: 97% less"


# ---- in a run


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def chains(sandbox: Sandbox) -> Result:
    async def first(arguments: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return {"next": arguments["n"], "filling": "x" * 100}

    async def second(arguments: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return {"end": arguments["n"]}

    tools = [Tool(name="first", handler=first), Tool(name="second", handler=second)]
    program = """
        const ends = await Promise.all([1, 2, 3, 4].map(async n => {
            const one = await tools.first({ n });
            return (await tools.second({ n: one.next })).end;
        }));
        return ends.length;
    """
    async with Executor(tools, sandbox=sandbox) as executor:
        return await executor.run(program)


@pytest.mark.anyio
async def test_a_runs_ledger_has_its_definitions_replies_and_levels(opened: Sandbox) -> None:
    result = await chains(opened)
    count = result.ledger.in_bytes
    assert count.direct.requests == 3  # four calls, four calls, the answer: whatever the order of arrival
    assert {tool: each.calls for tool, each in count.by_tool.items()} == {"first": 4, "second": 4}
    reply = result_item(json.dumps({"next": 1, "filling": "x" * 100}, separators=(",", ":")))
    assert count.by_tool["first"].replies == 4 * len(reply)
    assert count.by_tool["second"].definition == len(tool_item("second", "", {"type": "object"}))
    assert count.program.results == len(result_item(result.text))
    assert result.to_data()["ledger"] == result.ledger.to_data()
