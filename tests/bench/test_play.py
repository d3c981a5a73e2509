"""Every workload, played through the real adapters, gate and executor: the right calls, in every arm and format."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest

from bridge.bench.arms import ARMS, policy
from bridge.bench.models import BREAKS, scripted
from bridge.bench.play import Played, play
from bridge.bench.tasks import Open, Task
from bridge.bench.wire import FORMATS
from bridge.bench.workloads import workload
from sandbox import Sandbox

pytestmark = pytest.mark.anyio
SMALL = [("orders", 0), ("expenses", 0), ("fanout", 1), ("catalogue", 4), *(("adverse", number) for number in range(4))]
FEW = [("direct-par", "oracle"), ("prog-decl", "oracle")]
MORE = [
    ("direct-seq", "oracle"),
    ("direct-search", "oracle"),
    ("prog-decl", "staged"),
    ("prog-decl", "explore+faulty@1"),
    ("prog-equal", "oracle"),
    ("prog-search", "oracle"),
]


async def played(
    task: Task, sandbox: Sandbox, arm: str, model: str = "oracle", returns: str = "projection", form: str = "responses"
) -> Played:
    return await play(task, ARMS[arm], scripted(model), policy(returns), FORMATS[form], sandbox, seed=1)


def task_of(name: str, number: int) -> Task:
    return workload(name)(3, 1)[number]


@pytest.mark.parametrize(
    ("name", "number", "arm", "model"),
    [
        *((*task, arm, model) for task in SMALL for arm, model in FEW),
        *((*task, arm, model) for task in (("orders", 0), ("adverse", 1)) for arm, model in MORE),
    ],
)
async def test_the_plan_of_every_task_is_executed(
    opened: Sandbox, name: str, number: int, arm: str, model: str
) -> None:
    found = await played(task_of(name, number), opened, arm, model)
    assert found.executed
    assert (found.searches > 0) == ("search" in arm)
    assert (found.programs > 0) == ("prog" in arm)
    assert (found.programs_failed > 0) == ("faulty" in model)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("arm", ["direct-par", "prog-decl", "prog-equal", "prog-search"])
async def test_every_format_has_the_same_calls(opened: Sandbox, form: str, arm: str) -> None:
    found = await played(task_of("orders", 0), opened, arm, form=form)
    assert found.executed
    for body, output in found.requests:
        json.loads(body.text)
        assert all(json.loads(part.text) for part in output)


async def test_a_body_holds_all_that_came_before_it(opened: Sandbox) -> None:
    found = await played(task_of("orders", 0), opened, "direct-par")
    for (before, output), (after, _) in zip(found.requests, found.requests[1:], strict=False):
        written = tuple(part.text for part in (*before.items, *output))
        assert tuple(part.text for part in after.items)[: len(written)] == written
    kinds = [[part.kind for part in body.items] for body, _ in found.requests]
    assert kinds[0] == ["user"]
    assert kinds[1] == ["user", "calls", "results"]


async def test_arms_differ_in_their_catalogue_and_in_nothing_else(opened: Sandbox) -> None:
    task = task_of("orders", 0)
    bodies = {arm: (await played(task, opened, arm)).requests[0][0] for arm in ARMS}
    names = {arm: [json.loads(part.text)["name"] for part in body.tools] for arm, body in bodies.items()}
    plain = [tool.name for tool in task.open().tools]
    assert names["direct-par"] == names["direct-seq"] == plain
    assert names["prog-decl"] == ["run_program"]
    assert names["prog-equal"] == ["run_program", *plain]
    assert names["direct-search"] == ["search_tools"]
    assert names["prog-search"] == ["run_program", "search_tools"]
    assert names["direct-compact"] == []
    declared = {arm for arm, body in bodies.items() if "track_parcel(args" in body.head}
    assert declared == {"prog-decl", "direct-compact"}
    assert bodies["prog-equal"].tools[1:] == bodies["direct-par"].tools
    assert len({body.items for body in bodies.values() if "search_tools" not in body.text}) == 1


async def test_a_program_that_cannot_see_replies_shows_the_model_only_what_it_returns(opened: Sandbox) -> None:
    found = await played(task_of("expenses", 0), opened, "prog-decl")
    read = [part.text for part in found.requests[-1][0].items if part.kind in ("results", "result")]
    assert len(read) == 1
    assert "receipt_url" not in read[0]
    whole = await played(task_of("expenses", 0), opened, "prog-decl", returns="full")
    assert "receipt_url" in whole.requests[-1][0].text


@pytest.mark.parametrize("arm", ["direct-par", "prog-decl"])
async def test_a_cap_holds_in_every_arm(opened: Sandbox, arm: str) -> None:
    task = task_of("adverse", 0)
    whole = await played(task, opened, arm, returns="full")
    capped = await played(task, opened, arm, returns="cap:700")
    size = [len(json.loads(each.requests[-1][0].items[-1].text)["output"].encode()) for each in (whole, capped)]
    assert size[0] > 1000
    assert size[1] <= 700
    assert capped.executed


@pytest.mark.parametrize("arm", ["direct-par", "prog-decl"])
async def test_the_same_seed_gives_the_same_bodies_byte_for_byte(opened: Sandbox, arm: str) -> None:
    task = task_of("adverse", 0)
    first, second = [await played(task, opened, arm, "faulty@0.5", returns="cap:700") for _ in range(2)]
    assert [body.text for body, _ in first.requests] == [body.text for body, _ in second.requests]
    assert first.requests == second.requests


@pytest.mark.parametrize("form", BREAKS)
async def test_a_broken_program_fails_before_it_has_called_anything(
    opened: Sandbox, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = BREAKS[form]
    monkeypatch.setattr(random.Random, "choice", lambda self, options: form if form in options else options[0])
    found = await played(task_of("orders", 0), opened, "prog-decl", "faulty@1")
    sent = [json.loads(json.loads(output[0].text)["arguments"])["program"] for _, output in found.requests[:2]]
    assert sent[0] == broken(sent[1])
    assert found.executed
    assert (found.programs, found.programs_failed) == (2, 1)


async def test_a_wrong_program_is_not_called_executed(opened: Sandbox) -> None:
    task = task_of("orders", 0)
    programs: Any = task.turns[0].programs
    programs.oracle["projection"] = "return (await tools.list_orders({ week: '2026-W10' })).length"
    assert not (await played(task, opened, "prog-decl")).executed


async def test_facts_count_as_seen_where_the_model_could_read_them(opened: Sandbox) -> None:
    task = workload("fanout")(3, 1)[4]
    direct, program = [await played(task, opened, arm) for arm in ("direct-par", "prog-decl")]
    assert direct.facts == program.facts == direct.seen == program.seen == direct.failed > 0
    assert program.unsafe == program.failed  # it went on without them, and said so
    looks = await played(task, opened, "prog-decl", "explore")
    assert len(looks.made) == len(direct.made) + task.explore_calls


async def test_a_plan_that_ends_in_another_state_is_not_executed(opened: Sandbox) -> None:
    task = task_of("adverse", 2)
    assert (await played(task, opened, "prog-decl")).executed
    wanted = dataclasses.replace(task, state="refunded")
    assert not (await played(wanted, opened, "prog-decl")).executed
    kept = Open(tools=task.open().tools, state=lambda: "refunded")
    assert (await played(dataclasses.replace(wanted, open=lambda: kept), opened, "prog-decl")).executed
