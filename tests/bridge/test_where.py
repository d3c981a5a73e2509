"""Where the command keeps runs: what names the place, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge import where
from tests.bridge.kept_project import ONE, command, paused


@pytest.mark.parametrize(
    ("option", "variable", "configured", "url", "by"),
    [
        ("sqlite:///a", "sqlite:///b", "sqlite:///c", "sqlite:///a", "--store"),
        (None, "sqlite:///b", "sqlite:///c", "sqlite:///b", "SANDBRIDGE_STORE"),
        (None, "", "sqlite:///c", "sqlite:///c", "[store] of the configuration"),
        (None, "", None, "sqlite:////state/sandbridge/runs.db", "the default"),
    ],
)
def test_the_nearest_word_on_where_runs_are_kept_holds(
    option: str | None, variable: str, configured: str | None, url: str, by: str
) -> None:
    found = where.place(option, configured, {"XDG_STATE_HOME": "/state", "SANDBRIDGE_STORE": variable})
    assert (found.url, found.by, found.chosen) == (url, by, by != "the default")


def test_a_place_is_shown_without_its_password() -> None:
    assert where.place("postgresql://me:secret@db:5432/runs", None, {}).shown == "postgresql://db:5432/runs"


def test_a_store_of_the_configuration_may_take_its_password_from_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sandbridge.toml").write_text('[store]\nurl = "sqlite:///${NAME}.db"\n')
    unset = command("runs")
    assert (unset.exit_code, unset.stderr) == (
        2,
        (
            "sandbridge: sandbridge.toml, line 2: store.url: the variable NAME is not set: set it, or write "
            "${NAME:-default}\n"
        ),
    )
    monkeypatch.setenv("NAME", "mine")
    assert command("runs").stderr.startswith(f"sandbridge: there is no store {folder}/mine.db ([store] of")
    (folder / "sandbridge.toml").write_text("[store]\nfile = 1\n")
    assert command("runs").stderr == (
        "sandbridge: sandbridge.toml, line 1: store.url: is missing\n"
        "sandbridge: sandbridge.toml, line 2: store.file: there is no such key. There are: url\n"
    )


def test_doctor_says_where_runs_are_kept(folder: Path) -> None:
    paused(ONE)
    report: dict[str, Any] = json.loads(command("doctor", "--json").stdout)["store"]
    assert report == {
        "where": str(folder / "runs.db"),
        "by": "[store] of the configuration",
        "exists": True,
        "runs": 1,
        "reason": "",
    }
    (folder / "broken.db").write_text("no database at all, and long enough to be seen as none" * 40)
    broken = command("doctor", "--store", "sqlite:///broken.db")
    assert broken.exit_code == 1
    [line] = [line for line in broken.stdout.split("\n") if line.startswith("store ")]
    assert line == (
        f"store (--store): DOES NOT WORK: the store {folder}/broken.db cannot be used: file is not a database"
    )
