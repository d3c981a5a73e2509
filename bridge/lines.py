"""Where each key of a TOML or JSON file stands, so that an error can name its line.

The parsers of the standard library say what is in a file, not where. These scanners go over text that such a parser has
accepted already, so they look only for what moves them on, and check nothing.
"""

from __future__ import annotations

import re
from typing import Final

Path = tuple[str | int, ...]
Lines = dict[Path, int]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SKIP: Final = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")  # what may stand between two parts of a value
_PLAIN: Final = re.compile(r"[^,\]}#\r\n]*")  # numbers, dates, true, false
_STRINGS: Final = (
    re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL),
    re.compile(r"'[^']*'"),
)
_ESCAPE: Final = re.compile(r'\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(["\\/bfnrt]))')
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def line_of(lines: Lines, path: Path) -> int:
    """The line of a path, or of the nearest part of it that stands in the file; 1 where none does."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def toml_lines(text: str) -> Lines:
    """The line of each table and key of a TOML file. `text` must be valid: `tomllib` has read it."""
    return _Toml(text).read()


def json_lines(text: str) -> tuple[Lines, list[Path]]:
    """The line of each key and item of a JSON file, and the keys that stand twice. `text` must be valid."""
    scan = _Json(text)
    scan.value(())
    return scan.lines, scan.twice


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: Lines = {}
        self.twice: list[Path] = []
        self._counted = (0, 1)

    def line(self) -> int:
        """The number of the line that the scanner stands on; it only ever moves forward."""
        at, line = self._counted
        self._counted = (self.at, line + self.text.count("\n", at, self.at))
        return self._counted[1]

    def mark(self, path: Path) -> None:
        if path in self.lines:
            self.twice.append(path)
        self.lines.setdefault(path, self.line())

    def skip(self) -> str:
        """Past what separates; the character that stands there then, empty at the end."""
        return self.over(_SKIP, self.text[self.at : self.at + 1])

    def over(self, pattern: re.Pattern[str], default: str) -> str:
        if found := pattern.match(self.text, self.at):
            self.at = found.end()
            return self.text[self.at : self.at + 1]
        return default

    def string(self) -> str:
        for quotes, pattern in zip((3, 3, 1, 1), _STRINGS, strict=True):
            if found := pattern.match(self.text, self.at):
                self.at = found.end()
                inside = found[0][quotes:-quotes]
                return inside if found[0].startswith("'") else _ESCAPE.sub(_unescaped, inside)
        raise AssertionError(f"the scanner is lost at line {self.line()}: no parser has accepted this text")


class _Toml(_Scanner):
    def read(self) -> Lines:
        table: Path = ()
        while (sign := self.skip()) != "":
            if sign == "[":
                table = self._header()
                continue
            self._pair(table)
        return self.lines

    def _header(self) -> Path:
        array = self.text.startswith("[[", self.at)
        self.at += 2 if array else 1
        self.skip()
        keys = self._key()
        path: Path = ()
        for number, key in enumerate(keys, 1):
            path = (*path, key)
            if array and number == len(keys):
                self.lines.setdefault(path, self.line())
                path = (*path, self._items(path))
                self.lines[path] = self.line()
            else:
                self.lines.setdefault(path, self.line())
                if (count := self._items(path)) > 0:
                    path = (*path, count - 1)  # a table within the last of them
        self.skip()
        self.at += 2 if array else 1
        return path

    def _items(self, path: Path) -> int:
        count = 0
        while (*path, count) in self.lines:
            count += 1
        return count

    def _key(self) -> list[str]:
        keys: list[str] = []
        while True:
            found = _BARE.match(self.text, self.at)
            if found:
                self.at = found.end()
            keys.append(found[0] if found else self.string())
            if self.skip() != ".":
                return keys
            self.at += 1
            self.skip()

    def _pair(self, table: Path) -> None:
        line = self.line()
        path = table
        for key in self._key():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.at += 1  # the sign of equality
        self.skip()
        self._value(path)

    def _value(self, path: Path) -> None:
        match self.text[self.at : self.at + 1]:
            case "[":
                self.at += 1
                number = 0
                while self.skip() != "]":
                    self.mark((*path, number))
                    self._value((*path, number))
                    number += 1
                self.at += 1
            case "{":
                self.at += 1
                while self.skip() != "}":
                    self._pair(path)
                self.at += 1
            case '"' | "'":
                self.string()
            case _:
                self.over(_PLAIN, "")


class _Json(_Scanner):
    def value(self, path: Path) -> None:
        match self.skip():
            case "{":
                self.at += 1
                while self.skip() != "}":
                    inner = (*path, self.string())
                    self.mark(inner)
                    self.skip()
                    self.at += 1  # the colon
                    self.value(inner)
                self.at += 1
            case "[":
                self.at += 1
                number = 0
                while self.skip() != "]":
                    self.mark((*path, number))
                    self.value((*path, number))
                    number += 1
                self.at += 1
            case '"':
                self.string()
            case _:
                self.over(_PLAIN, "")


def _unescaped(found: re.Match[str]) -> str:
    digits = found[1] or found[2]
    return chr(int(digits, 16)) if digits else _ESCAPED.get(found[3], found[3])
