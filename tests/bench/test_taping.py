"""Cassettes: what a live model wrote, kept without any key, and played again without sending anything."""

from __future__ import annotations

import re
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from bridge.bench import commands, live, rows, taping
from bridge.bench.count import Price
from bridge.bench.summary import summarize
from bridge.bench.tasks import Task
from bridge.errors import ConfigurationError
from tests.providers.openai_wire import Wire, calls, says, served

USAGE = {"input": 100, "cached": 0, "output": 10, "cache_write": 0, "reasoning": 0}


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Generator[Wire]:
    with served() as wire:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-a-test")
        monkeypatch.setenv("OPENAI_BASE_URL", wire.base_url)
        yield wire


def recorded(wire: Wire, folder: Path, max_usd: float = 1.0) -> int:
    for _ in range(2):
        wire.play([calls("get_team", {"department": "engineering"})], [says("Done.")])
    made = ["direct-par"]
    return taping.record(folder, "openai", "gpt-test", max_usd, ["expenses"], made, "full", None, 1, 3, (None, None))


def test_a_cassette_gives_the_same_rows_again_and_holds_no_key(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recorded(wire, tmp_path / "live") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("2 conversations with gpt-test; the oracle's would cost 0.")
    assert "2 of 2 conversations recorded for 0." in said[1]
    assert all(b"secret" not in file.read_bytes() for file in (tmp_path / "live").iterdir())

    before = len(wire.requests)
    assert taping.replay(tmp_path / "live" / taping.CASSETTE, tmp_path / "again") == 0
    assert len(wire.requests) == before  # nothing was sent
    for name in (rows.BODIES, rows.PARTS):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "live" / name).read_bytes()
    one, other = rows.read_rows(tmp_path / "live"), rows.read_rows(tmp_path / "again")
    assert [row.requests for row in one] == [row.requests for row in other]
    assert {row.model for row in one} == {"live/gpt-test"}
    assert {row.model for row in other} == {"recorded/gpt-test"}
    assert one[0].usage == other[0].usage == [USAGE] * 2


def test_money_ends_a_recording_and_what_was_recorded_is_kept(wire: Wire, tmp_path: Path) -> None:
    assert recorded(wire, tmp_path, max_usd=0.0005) == 0
    assert len(live.read(tmp_path / taping.CASSETTE)) == 1


def test_repetitions_are_rows_of_their_own_and_arms_take_turns_by_chance(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(12):
        wire.play([says("I cannot.")])
    made = ["direct-par", "prog-decl"]
    words = ("full", None, 1, 3, (None, None), 3)
    assert taping.record(tmp_path, "openai", "gpt-test", 1.0, ["expenses"], made, *words) == 0
    assert "12 of 12 conversations recorded" in capsys.readouterr().out
    found = rows.read_rows(tmp_path)
    assert sorted((row.arm, row.repetition) for row in found if row.task == found[0].task) == [
        (arm, repetition) for arm in made for repetition in range(3)
    ]
    orders = [[tape.arm for tape in live.read(tmp_path / taping.CASSETTE)][at : at + 2] for at in range(0, 12, 2)]
    assert sorted(set(map(tuple, orders))) == [("direct-par", "prog-decl"), ("prog-decl", "direct-par")]
    done = summarize(found, Price(input=1, cached=0.1, output=10), 3).done["expenses"]
    assert [(each.n, each.done, each.p) for each in done.values()] == [(6, 0, 1.0)] * 2


def test_one_command_asks_a_live_model_and_says_how_often_its_tasks_were_done(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(8):
        wire.play([says("I cannot.")])
    options = {"arms": "prog-decl", "tasks": 1, "seed": 3, "max_usd": 1.0, "repetitions": 2}
    assert commands.run(tmp_path, "expenses", model="live:openai/gpt-test", **options) == 0
    said = capsys.readouterr().out
    assert "prog-decl · live/gpt-test · projection: done 0 of 4 (0 to 49%), 0 / 0, +0.0 points (range" in said
    assert said.splitlines()[-1] == f"the whole page: {tmp_path / 'report.html'}"
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Tasks done: the calls of the ground truth and no other" in page
    assert "a loss is not ruled out" in page


def test_without_a_bound_on_money_no_live_model_is_asked(wire: Wire, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="say how much at most, such as --max-usd 5 for gpt-test"):
        commands.run(tmp_path, "expenses", model="live:openai/gpt-test")
    assert wire.requests == []


def test_what_was_recorded_is_kept_when_the_provider_fails(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wire.play([calls("get_team", {"department": "engineering"})], [says("Done.")])  # and nothing for the second task
    words = ("full", None, 1, 3, (None, None))
    status = taping.record(tmp_path, "openai", "gpt-test", 1.0, ["expenses"], ["direct-par"], *words)
    assert status == 1
    assert "it ended early: expenses-" in capsys.readouterr().out
    assert len(rows.read_rows(tmp_path)) == len(live.read(tmp_path / taping.CASSETTE)) == 1


def test_what_was_recorded_is_kept_when_somebody_interrupts(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    played = live.play
    begun: list[str] = []

    async def interrupted(task: Task, *words: Any) -> Any:
        begun.append(task.id)
        if len(begun) == 2:
            signal.raise_signal(signal.SIGINT)
        return await played(task, *words)

    monkeypatch.setattr(live, "play", interrupted)
    assert recorded(wire, tmp_path) == 1
    assert capsys.readouterr().out.endswith("it ended early: interrupted\n")
    assert [row.task for row in rows.read_rows(tmp_path)] == begun[:1]
    assert [tape.task for tape in live.read(tmp_path / taping.CASSETTE)] == begun[:1]


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_paid_for(wire: Wire, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"file/cassette\.jsonl cannot be written: Not a directory"):
        recorded(wire, tmp_path / "file")
    assert wire.requests == []


def test_a_replay_says_where_requests_are_no_longer_the_recorded_ones(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(wire, tmp_path)
    tapes = live.read(tmp_path / taping.CASSETTE)
    changed = live.Answer("0" * 64, tapes[0].answers[0].output)
    tapes[0].answers[0] = changed
    live.write(tmp_path / "changed.jsonl", tapes)
    capsys.readouterr()
    assert taping.replay(tmp_path / "changed.jsonl", tmp_path / "again") == 1
    assert "2 conversations replayed; 1 requests are not the recorded ones" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cassette.jsonl cannot be read: No such file or directory; it is to be a cassette, as "),
        ("", "cassette.jsonl: there is nothing in it"),
        ("{", "cassette.jsonl is not a cassette, as `sandbridge bench context record` writes one: "),
        ('{"task": "t"}', "cassette.jsonl is not a cassette, as `sandbridge bench context record` writes one: "),
    ],
)
def test_a_cassette_that_is_none_is_refused(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "cassette.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        taping.replay(file, tmp_path / "out")
