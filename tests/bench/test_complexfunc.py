"""complexfuncbench: from recorded calls with references to levels, programs and stages. The data here are made up."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.bench.arms import ARMS, policy
from bridge.bench.models import scripted
from bridge.bench.play import play
from bridge.bench.wire import FORMATS
from bridge.bench.workloads.complexfunc import Recorded, task_of
from sandbox import Sandbox


def call(label: str, name: str, arguments: dict[str, Any], response: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "label": label, "errors": [], "response": response}


RAW = {
    "input": " Which flight from Porto on 2026-12-01 is cheapest, and is there a taxi? ",
    "output": [
        call("var1", "Find", {"query": "Porto"}, [{"id": "OPO.AIRPORT", "at": {"lat": 41.2}}, {"id": "other"}]),
        call("var2", "Find", {"query": "Lyon"}, [{"id": "LYS.AIRPORT", "at": {"lat": 45.7}}]),
        call(
            "var3",
            "Flights",
            {"from": "$var1.id$", "to": "$var2.id$", "date": "2026-12-01"},
            {"offers": [{"token": "d7_secret"}], "n": 1},
        ),
        call("var4", "Taxi", {"lat": "$var1.at.lat$", "time": "10:00"}, {"taxis": [1, 2]}),
        call("var5", "Details", {"token": "d7_secret", "from": "$var1.id$"}, {"price": 80}),
    ],
}
SPEC = [
    {
        "name": name,
        "description": f"{name}.",
        "query_parameters": {
            key: {"type": "number" if key == "lat" else "string", "description": "", "required": True, "enum": []}
            for key in keys.split()
        },
    }
    for name, keys in {"Find": "query", "Flights": "from to date", "Taxi": "lat time", "Details": "token from"}.items()
]


def test_levels_follow_references_and_what_must_have_been_read() -> None:
    recorded = Recorded(RAW)
    assert recorded.levels == {"var1": 1, "var2": 1, "var3": 2, "var4": 2, "var5": 3}
    assert recorded.hidden == ["d7_secret"]
    assert recorded.looks["var5"] == {"var3"}
    assert [len(level) for level in recorded.calls()] == [2, 2, 1]
    assert recorded.calls()[1][0].arguments == {"from": "OPO.AIRPORT", "to": "LYS.AIRPORT", "date": "2026-12-01"}


def test_the_oracle_makes_the_calls_of_one_step_together_and_returns_what_nobody_consumes() -> None:
    assert Recorded(RAW).oracle("projection") == (
        "const [var1, var2] = await Promise.all([\n"
        '  tools.Find({ query: "Porto" }),\n'
        '  tools.Find({ query: "Lyon" }),\n'
        "]);\n"
        "const [var3, var4, var5] = await Promise.all([\n"
        '  tools.Flights({ from: var1[0].id, to: var2[0].id, date: "2026-12-01" }),\n'
        '  tools.Taxi({ lat: var1[0].at.lat, time: "10:00" }),\n'
        '  tools.Details({ token: "d7_secret", from: var1[0].id }),\n'
        "]);\n"
        "return { var3, var4, var5 };"
    )
    assert Recorded(RAW).oracle("full").endswith("return { var1, var2, var3, var4, var5 };")


def test_the_staged_model_stops_where_a_reply_must_be_read() -> None:
    first, second = Recorded(RAW).staged("projection")
    assert first.endswith("return { var3, var4, picks: [var1[0].id] };")
    assert second == (
        'const var5 = await tools.Details({ token: "d7_secret", from: "OPO.AIRPORT" });\nreturn { var5 };'
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arm", "model", "requests", "seen"),
    [
        ("direct-par", "oracle", 4, 1),
        ("direct-seq", "oracle", 6, 1),
        ("prog-decl", "oracle", 2, 1),
        ("prog-decl", "staged", 3, 1),
    ],
)
async def test_every_arm_makes_the_recorded_calls_and_no_other(
    opened: Sandbox, arm: str, model: str, requests: int, seen: int
) -> None:
    task = task_of("t", RAW, SPEC)
    found = await play(task, ARMS[arm], scripted(model), policy("projection"), FORMATS["responses"], opened, seed=1)
    assert found.executed
    assert (len(found.requests), found.seen, found.facts) == (requests, seen, 1)


def test_a_tool_is_called_by_the_name_that_programs_have_for_it() -> None:
    raw = RAW | {"output": [call("var1", "Get_Reviews(Tips)", {}, [])]}
    assert Recorded(raw).oracle("full").startswith("const var1 = await tools.Get_Reviews_Tips_({});")


@pytest.mark.anyio
@pytest.mark.parametrize("arm", ["direct-par", "prog-decl"])
async def test_a_recorded_call_that_its_own_schema_does_not_take_is_made_all_the_same(
    opened: Sandbox, arm: str
) -> None:
    raw = RAW | {
        "output": [call("var1", "Find", {"query": 41.25}, []), call("var2", "Taxi", {"lat": 1, "time": "x"}, 1)]
    }
    spec = [each | {"query_parameters": dict(each["query_parameters"])} for each in SPEC]
    spec[2]["query_parameters"]["time"] = {"type": "string", "description": "", "required": True, "enum": ["10:00"]}
    task = task_of("t", raw, spec)
    found = await play(task, ARMS[arm], scripted("oracle"), policy("full"), FORMATS["responses"], opened, seed=1)
    assert found.executed
    assert found.failed == 0


@pytest.mark.anyio
async def test_a_call_that_was_not_recorded_is_no_plan_executed(opened: Sandbox) -> None:
    task = task_of("t", RAW, SPEC)
    programs: Any = task.turns[0].programs.oracle
    programs["projection"] = programs["projection"].replace("Porto", "Faro")
    found = await play(
        task, ARMS["prog-decl"], scripted("oracle"), policy("projection"), FORMATS["responses"], opened, seed=1
    )
    assert not found.executed
