"""The strict mode, from a file and from the command: every wall, or no program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge import ConfigurationError
from bridge.config import load
from sandbox import WALLS


def written(folder: Path, text: str) -> Path:
    file = folder / "sandbridge.toml"
    file.write_text(text)
    return file


def test_a_file_requires_every_wall_by_one_word(tmp_path: Path) -> None:
    assert load(written(tmp_path, '[sandbox]\nrequire = "all"\n')).sandbox == {"require": list(WALLS)}


def test_another_word_is_no_list_of_walls(tmp_path: Path) -> None:
    file = written(tmp_path, '[sandbox]\nrequire = "seccomp"\n')
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert str(caught.value).startswith(f'{file}, line 2: sandbox.require: must be "all" or a list of walls: process, ')


def test_the_command_is_stricter_than_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, '[sandbox]\nrequire = ["process"]\n')
    assert load(file, strict=True).sandbox == {"require": "all"}
    assert load(file).sandbox == {"require": ["process"]}


def said(folder: Path, *command: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a command whose input stays open: a server must not end because it is over."""
    with subprocess.Popen(
        [sys.executable, "-m", "bridge.cli", *command, "--strict"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        out, errors = process.stdout.read(), process.stderr.read()
        return process.wait(60), out, errors


@pytest.mark.parametrize("command", [["run", "program.js"], ["serve"]])
def test_a_command_that_is_strict_runs_nothing_without_a_wall(tmp_path: Path, command: list[str]) -> None:
    written(tmp_path, "[sandbox]\njit = true\n")
    (tmp_path / "program.js").write_text("return 1")
    status, out, errors = said(tmp_path, *command)
    assert (status, out) == (2, "")
    assert "the wall 'code_pages' (no memory is writable and executable) does not stand: " in errors


def test_doctor_says_what_the_strict_mode_would_miss(tmp_path: Path) -> None:
    written(tmp_path, "[sandbox]\njit = true\n")
    status, out, _ = said(tmp_path, "doctor")
    assert status == 1
    assert "code_pages    MISSING (required)" in out
