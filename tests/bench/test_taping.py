"""Cassettes: what a live model wrote, kept without any key, and played again without sending anything."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from bridge.bench import live, rows, taping
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


@pytest.mark.parametrize("content", [None, "", "{", '{"task": "t"}'])
def test_a_cassette_that_is_none_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "cassette.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"cassette .*cassette.jsonl: "):
        taping.replay(file, tmp_path / "out")
