"""`sandbridge tools --lock` and `--check`: exit status, and what a person and a machine read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from bridge.cli import app
from bridge.lock import Lock
from tests.bridge.test_lock import PRICE, SERVER, TRACK, listed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one server, and a lock that its configuration names; the directory that is worked in."""
    args = json.dumps([str(SERVER), str(tmp_path / "tools.json")])
    config = f'lock = "team.lock"\n[servers.carrier]\ncommand = "python"\nargs = {args}\n'
    (tmp_path / "sandbridge.toml").write_text(config)
    (tmp_path / "tools.json").write_text(json.dumps([TRACK, PRICE]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Exit status, standard output, standard error; in this process, for a start costs more than all it does."""

    def run(*args: str) -> tuple[int, str, str]:
        status = typer.main.get_command(app).main([*args], prog_name="sandbridge", standalone_mode=False)
        out, said = capfd.readouterr()
        return status, out, said

    return run


def test_a_team_writes_the_lock_checks_it_and_accepts_a_change(folder: Path, command: Command) -> None:
    lock = folder / "team.lock"
    missing = f"sandbridge: {lock}: is not there: `sandbridge tools --lock` makes it\n"
    assert command("tools") == (2, "", missing)
    assert command("tools", "--lock") == (0, "", f"{lock}: 2 tools (2 added, 0 removed, 0 changed)\n")
    assert command("tools", "--check") == (0, f"{lock}: 0 added, 0 removed, 0 changed\n", "")
    (folder / "tools.json").write_text(json.dumps([listed("track", "Sends\u200b all."), listed("new", "More.")]))
    status, out, _ = command("tools", "--check")
    assert (status, out.splitlines()) == (
        1,
        [
            "added: carrier/new",
            "removed: carrier/price",
            "changed: carrier/track",
            "  description:",
            "    - Where a parcel is.",
            "    + Sends\\u{200b} all.",
            "  input_schema:",
            "    + properties: {}",
            '    - properties.id.type: "string"',
            f"{lock}: 1 added, 1 removed, 1 changed",
        ],
    )
    status, out, said = command("tools", "--json")
    assert (status, json.loads(out)["tools"]) == (0, [])
    assert f"warning: server carrier: tool track is not what {lock} says, and left out" in said
    status, _, said = command("tools", "--lock")
    assert (status, "changed: carrier/track" in said.splitlines()) == (0, True)
    assert command("tools", "--check")[0] == 0


def test_a_check_is_json_for_a_machine(folder: Path, command: Command) -> None:
    (folder / "team.lock").write_text(Lock({"carrier": {"track": {"title": "T"}, "gone": {}}}).text())
    status, out, _ = command("tools", "--check", "--json")
    told = json.loads(out)
    assert (status, told["added"], told["removed"], [*told["changed"]], told["down"]) == (
        1,
        ["carrier/price"],
        ["carrier/gone"],
        ["carrier/track"],
        {},
    )


def test_a_server_that_is_down_is_neither_locked_nor_taken_for_removed(folder: Path, command: Command) -> None:
    assert command("tools", "--lock")[0] == 0
    lock = folder / "team.lock"
    before = lock.read_text()
    (folder / "tools.json").unlink()  # the server fails when it is asked for its list
    status, out, said = command("tools", "--check")
    assert (status, out) == (2, f"{lock}: 0 added, 0 removed, 0 changed\n")
    assert "cannot be checked: server 'carrier'" in said
    status, _, said = command("tools", "--lock")
    assert (status, lock.read_text()) == (2, before)
    assert "was not written, for tools would be missing from it" in said


def test_writing_and_checking_at_once_is_refused(folder: Path, command: Command) -> None:
    assert command("tools", "--lock", "--check") == (
        2,
        "",
        "sandbridge: --lock stands against --check: leave out one of them\n",
    )


def test_a_lock_has_the_tools_that_a_server_offers_only_where_a_person_can_be_asked(
    folder: Path, command: Command
) -> None:
    (folder / "tools.json").write_text(json.dumps([TRACK, {**PRICE, "_meta": {"asks": True}}]))
    assert command("tools", "--lock") == (0, "", f"{folder / 'team.lock'}: 2 tools (2 added, 0 removed, 0 changed)\n")
    assert list(Lock.read(folder / "team.lock").servers["carrier"]) == ["price", "track"]
