"""Functions that a configuration file names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bridge import config
from bridge.errors import ConfigurationError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the current one, so that errors name files without their path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def loaded(text: str) -> config.Configuration:
    Path("s.toml").write_text(text, "utf-8")
    return config.load(Path("s.toml"))


def wrong(text: str) -> list[str]:
    """The lines of the error that this file gives."""
    with pytest.raises(ConfigurationError) as caught:
        loaded(text)
    return str(caught.value).split("\n")


def test_functions_come_from_files_beside_the_configuration_and_from_modules(folder: Path):
    (folder / "near.py").write_text("def double(n: int) -> int:\n    return 2 * n\n")
    (folder / "package_of_test").mkdir()
    (folder / "package_of_test/deep.py").write_text(
        "class A:\n    @staticmethod\n    def triple(n: int) -> int: return 3 * n\n"
    )
    settings = loaded('functions = ["near.py:double", "package_of_test.deep:A.triple"]')
    assert [tool.full_name for tool in settings.functions] == ["double", "triple"]


def test_a_star_takes_what_the_decorator_made_and_leaves_other_functions(folder: Path):
    text = "from bridge import tool\n@tool\ndef b() -> int: return 1\n@tool\ndef a() -> int: return 1\ndef c(): ...\n"
    (folder / "starred.py").write_text(text)
    assert [tool.name for tool in loaded('functions = ["starred.py:*"]').functions] == ["b", "a"]


def test_a_file_is_imported_once_however_often_it_is_named(folder: Path):
    (folder / "once.py").write_text("def a(): ...\ndef b(): ...\ncount = globals().get('count', 0) + 1\n")
    first, second = loaded('functions = ["once.py:a", "once.py:b"]').functions
    assert first.function.__globals__ is second.function.__globals__


def test_a_module_that_fails_is_told_with_its_line_and_never_ends_the_command(folder: Path):
    (folder / "bad_one.py").write_text("x = 1\nraise ValueError('no database')\n")
    (folder / "bad_two.py").write_text("x = 1\n\nx = = 2\n")
    (folder / "bad_three.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "good_one.py").write_text("def a(): ...\ndef _b(): ...\nc = 1\n")
    names = ["bad_one.py:f", "bad_two.py:f", "bad_three.py:f", "good_one.py:b", "good_one.py:c", "good_one.py:*"]
    assert wrong(f"functions = {json.dumps(names)}") == [
        "s.toml, line 1: functions[0]: bad_one.py failed at its line 2: ValueError: no database",
        (
            "s.toml, line 1: functions[1]: bad_two.py failed at its line 3: SyntaxError: invalid syntax (bad_two.py, "
            "line 3)"
        ),
        "s.toml, line 1: functions[2]: bad_three.py failed at its line 2: SystemExit: 3",
        "s.toml, line 1: functions[3]: good_one.py has no 'b'. It has: a",
        "s.toml, line 1: functions[4]: good_one.py:c is no function but a int",
        "s.toml, line 1: functions[5]: good_one.py has nothing that @tool made: decorate a function, or name one",
    ]


def test_two_functions_of_one_name_are_refused(folder: Path):
    (folder / "same_one.py").write_text("def a(): ...\n")
    (folder / "same_two.py").write_text("def a(): ...\n")
    assert wrong('functions = ["same_one.py:a",\n"same_two.py:a"]') == [
        "s.toml, line 2: functions[1]: a second tool 'a': rename one (`@tool(name=...)`)"
    ]
