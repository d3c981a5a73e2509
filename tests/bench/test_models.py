"""Arms, policies and scripted models, by name; and what a scripted model writes."""

from __future__ import annotations

import random

import pytest

from bridge.bench.arms import ARMS, UNCAPPED, Policy, arm, policy
from bridge.bench.models import BREAKS, Calls, Say, Scripted, Write, scripted
from bridge.bench.runner import STANDARD, variant
from bridge.bench.tasks import Call, Programs, Task, Turn, same_calls
from bridge.bench.tasks import Open as Opened
from bridge.bench.workloads import WORKLOADS, workload
from bridge.errors import ConfigurationError

A, B, C = (Call(name, {}) for name in "abc")
TURN = Turn(
    question="?",
    levels=[[A, B], [C]],
    programs=Programs(
        oracle={"full": "all", "projection": "one"},
        staged={"full": ["s1", "s2"], "projection": ["p1", "p2"]},
        explore="look",
    ),
    answer="!",
)
TASK = Task(id="t", workload="w", turns=[TURN], open=lambda: Opened(tools=[]))


def steps(model: str, arm_name: str = "prog-decl", returns: str = "projection") -> list[object]:
    chosen = variant(arm_name, model, returns)
    return list(chosen.model.steps(TASK, TURN, chosen.arm, chosen.policy.returns, random.Random(1)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("full", Policy("full")),
        ("projection", Policy("projection")),
        ("cap:6000", Policy("full", 6000)),
        ("projection+cap:600", Policy("projection", 600)),
    ],
)
def test_a_policy_is_read_from_its_name_and_has_it(text: str, found: Policy) -> None:
    assert policy(text) == found
    assert policy(found.name) == found
    assert Policy("full").cap_bytes == UNCAPPED


@pytest.mark.parametrize("text", ["", "some", "cap:", "cap:0", "cap:1", "+cap:600", "full,cap:600", "projection+"])
def test_a_policy_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write full, projection, cap:BYTES or projection"):
        policy(text)


@pytest.mark.parametrize(
    "name", ["oracle", "staged", "explore", "faulty@0.3", "faulty@1", "explore+faulty@0.5", "explore+staged+faulty@1"]
)
def test_a_model_is_read_from_its_name_and_says_that_it_is_scripted(name: str) -> None:
    assert scripted(f"scripted:{name}").name == f"scripted/{name}"
    assert scripted(scripted(name).name) == scripted(name)


@pytest.mark.parametrize("name", ["", "clever", "faulty", "faulty@2", "faulty@-1", "oracle+clever"])
def test_a_model_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is none of oracle, staged, explore, faulty@P"):
        scripted(name)


def test_names_that_are_not_there_are_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match="there is: direct-par, direct-seq"):
        arm("direct")
    with pytest.raises(ConfigurationError, match="there is: orders, expenses"):
        workload("nothing")


def test_everything_that_the_report_runs_is_there() -> None:
    assert STANDARD.keys() == WORKLOADS.keys()
    for variants in STANDARD.values():
        assert ("direct-par",) in variants
        for names in variants:
            assert variant(*names).arm.name in ARMS


def test_direct_arms_call_by_level_or_one_by_one() -> None:
    assert steps("oracle", "direct-par") == [Calls([A, B]), Calls([C]), Say("!")]
    assert steps("oracle", "direct-seq") == [Calls([A]), Calls([B]), Calls([C]), Say("!")]


def test_programs_are_those_of_the_turn() -> None:
    assert steps("oracle") == [Write("one"), Say("!")]
    assert steps("oracle", returns="full") == [Write("all"), Say("!")]
    assert steps("staged") == [Write("p1"), Write("p2"), Say("!")]
    assert steps("explore") == [Write("look"), Write("one"), Say("!")]


def test_a_faulty_model_sends_a_broken_program_and_then_the_right_one() -> None:
    broken, *rest = steps("faulty@1")
    assert isinstance(broken, Write)
    assert broken.program != "one"
    assert "one" in broken.program
    assert rest == [Write("one"), Say("!")]
    assert steps("faulty@0") == steps("oracle")


def test_direct_arms_show_nothing_of_habits_with_programs() -> None:
    assert variant("direct-par", "explore+faulty@1", "projection") == variant("direct-par")
    assert variant("direct-par", "oracle", "projection+cap:600") == variant("direct-par", "oracle", "cap:600")
    assert Scripted(explore=True).seen_in(arm("direct-par")) == Scripted()


def test_a_turn_without_calls_is_answered_at_once() -> None:
    turn = Turn(question="?", levels=[], programs=Programs(oracle={"full": "", "projection": ""}), answer="ask me")
    assert Scripted().steps(TASK, turn, arm("prog-decl"), "full", random.Random(1)) == [Say("ask me")]


def test_broken_programs_are_broken_in_several_ways() -> None:
    assert len({broken("return 1") for broken in BREAKS.values()}) == len(BREAKS) >= 5


def test_the_same_calls_are_the_same_in_any_order_and_each_as_often() -> None:
    assert same_calls([A, B, B], [B, A, B])
    assert not same_calls([A, B], [A, B, B])
    assert same_calls([Call("a", {"n": "1", "f": 2.0})], [Call("a", {"f": 2, "n": 1})])
    assert not same_calls([Call("a", {"n": True})], [Call("a", {"n": "True"})])
