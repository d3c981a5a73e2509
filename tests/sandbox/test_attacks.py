"""Programs that try to get out or to break the bridge: each ends as expected, and what runs after it is untouched."""

from __future__ import annotations

import dataclasses
import functools
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio.from_thread
import pytest

from sandbox import Attempt, Sandbox, Siege, attack, seccomp
from sandbox.attacks import native as natively
from sandbox.attacks import siege as siege_module
from sandbox.attacks.corpus import HELD, Case, load
from sandbox.attacks.siege import ENDED, NATIVE, _native, _native_left_out, judged, meet
from tests.sandbox.conftest import SMALL, play

ATTACKS = load()


@pytest.fixture(scope="module")
def shared(portal: anyio.from_thread.BlockingPortal) -> Generator[Sandbox]:
    with portal.wrap_async_context_manager(Sandbox(limits=SMALL)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def siege(portal: anyio.from_thread.BlockingPortal) -> Siege:
    """All attacks, some at a time, in one sandbox: what one leaves behind would meet the next."""
    return portal.call(functools.partial(attack, deadline_s=600))


@pytest.mark.parametrize("case", ATTACKS, ids=[case.id for case in ATTACKS])
def test_an_attack_ends_as_expected_and_leaves_a_clean_sandbox(case: Case, siege: Siege) -> None:
    assert {attempt.seen for attempt in siege.attempts if attempt.name == case.id} == {""}


def test_native_code_in_a_worker_like_the_users_own_is_held_by_every_wall(siege: Siege) -> None:
    native = [attempt for attempt in siege.attempts if attempt.threat.startswith("jail.")]
    assert [attempt for attempt in native if not attempt.held] == []
    assert {attempt.threat for attempt in native} == {threat for threat, _ in NATIVE.values()} | {ENDED[0]}
    assert len(native) > 300
    assert [each for each in siege.left_out if not each.absent] == []


def test_what_native_code_gets_done_or_beyond_the_walls_counts_as_fallen() -> None:
    answers = {"open": "done", "stat": "ENOENT", "creat": "EPERM", "clone3": "ENOSYS"}
    found = {
        "attempts": {"files": answers, "allowed": {"getpid": "done"}},
        "violations": {"fork": "done", "bpf": "ended"},
    }
    assert [(attempt.name, attempt.held) for attempt in judged(found)] == [
        ("open", False),
        ("stat", False),
        ("creat", True),
        ("clone3", True),
        ("fork", False),
        ("bpf", True),
    ]


def test_a_siege_without_time_says_what_it_left_out(portal: anyio.from_thread.BlockingPortal) -> None:
    made = portal.call(functools.partial(attack, deadline_s=0))
    late = [each for each in made.left_out if not each.threat.startswith("jail.")]
    assert {each.threat for each in late} == {case.threat for case in ATTACKS}
    assert sum(each.attacks for each in late) == len(ATTACKS)
    assert {(each.why, each.absent) for each in late} == {("0 s were over", False)}


def test_programs_get_what_native_code_leaves_of_the_time(
    portal: anyio.from_thread.BlockingPortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    slow = Attempt("jail.files", "open", held=True)

    def native(*_: Any) -> tuple[list[Attempt], str]:
        monkeypatch.setattr(siege_module, "time", SimpleNamespace(monotonic=lambda: began + 1_000))
        return [slow], ""

    monkeypatch.setattr(siege_module, "_native", native)
    made = portal.call(functools.partial(attack, only=["realm.clock", "jail.files"], deadline_s=900))
    assert made.attempts == [slow]
    assert {each.threat for each in made.left_out} == {"realm.clock"}


def test_what_this_machine_has_no_system_call_for_is_said_by_threat_and_as_absent(
    portal: anyio.from_thread.BlockingPortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(natively.CALLS, "creat")
    made = portal.call(functools.partial(attack, only=["jail.files"], deadline_s=60))
    (said,) = [each for each in made.left_out if "creat" in each.why.split(", ")[0]]
    assert (said.threat, said.absent, said.why.split(" ")[1:3]) == ("jail.files", True, ["has", "no"])


def test_native_code_that_cannot_be_run_is_said_for_each_of_its_threats(
    portal: anyio.from_thread.BlockingPortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seccomp, "here", lambda: None)
    found, why = _native({}, SMALL)
    assert found == []
    assert {(each.threat, each.attacks, each.why) for each in _native_left_out(why)} == {
        (threat, 0, f"there are no walls on {sys.platform} to try it against")
        for threat, _ in (*NATIVE.values(), ENDED)
    }


def test_a_part_of_the_siege_is_named_by_its_threat(portal: anyio.from_thread.BlockingPortal) -> None:
    made = portal.call(functools.partial(attack, only=["realm.clock"]))
    assert {attempt.threat for attempt in made.attempts} == {"realm.clock"}
    with pytest.raises(ValueError, match=r"^there is no threat moon: they are realm\.surface, "):
        portal.call(functools.partial(attack, only=["moon"]))


def test_the_corpus_has_its_cases_once_and_in_words() -> None:
    names = [case.id for case in ATTACKS]
    assert len(names) == len(set(names)) >= 193 + 150
    assert {case.threat for case in ATTACKS} == set(HELD)


@pytest.mark.parametrize(
    ("expect", "program", "broken"),
    [
        ({"ok": 1}, "return 2", "gave 2, not 1"),
        ({"ok": 1}, "return true", "gave true, not 1"),
        ({"ok": 1}, "throw 1", "ended as err, not with a value"),
        ({"err": "RangeError"}, "throw new TypeError('x')", "failed with TypeError (type_error)"),
        ({"err": "RangeError"}, "return 1", "ended as ok, not with an error"),
        ({"kind": ["stalled"]}, "return 1", "ended as ok, not as stalled"),
        ({"ok": 1, "calls": []}, "await tools.echo(1);return 1", 'made the calls [["echo", 1]], not []'),
        ({"ok": 1, "text": []}, "text('x');return 1", 'said ["x"]'),
        ({"ok": 1, "logs": [], "warn": "w"}, "console.log(1);return 1", 'logged ["1"]; lacks the warning w'),
    ],
)
def test_a_case_says_how_its_attack_was_not_held(
    expect: dict[str, Any],
    program: str,
    broken: str,
    portal: anyio.from_thread.BlockingPortal,
    shared: Sandbox,
) -> None:
    case = Case(id="x", threat="realm.values", js=program, expect=expect)
    assert [attempt.seen for attempt in portal.call(meet, shared, case)] == [broken]


def test_every_attack_that_computes_for_ever_is_ended_by_the_limit_it_hits(
    portal: anyio.from_thread.BlockingPortal, shared: Sandbox
) -> None:
    patient = dataclasses.replace(SMALL, wall_s=60)  # on a busy machine too it is the CPU time that ends it
    out = portal.call(functools.partial(play, limits=patient), shared, "for(;;);")
    assert out.death is not None
    assert out.death.limit == "cpu_s"


def test_with_a_jit_the_same_surface_is_gone(portal: anyio.from_thread.BlockingPortal) -> None:
    with portal.wrap_async_context_manager(Sandbox(limits=SMALL, jit=True, spares=0)) as sandbox:
        names = "[typeof WebAssembly, typeof SharedArrayBuffer, typeof Atomics, typeof WeakRef]"
        assert portal.call(play, sandbox, f"return {names}").value == ["undefined"] * 4
        assert portal.call(play, sandbox, "try { new Function('1') } catch (e) { return e.name }").value == "EvalError"
        assert sandbox.walls["code_pages"] != ""


def test_no_process_is_left_when_the_sandbox_closes(portal: anyio.from_thread.BlockingPortal) -> None:
    with portal.wrap_async_context_manager(Sandbox(limits=SMALL)) as sandbox:
        portal.call(play, sandbox, "return 1")
        zygote = sandbox._origin.process.pid  # the zygote is no public name
        assert Path(f"/proc/{zygote}").exists()
    assert not Path(f"/proc/{zygote}").exists()
