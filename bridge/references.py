"""Functions that a configuration file names: imported, and made into tools."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from bridge.errors import BridgeError, ConfigurationError
from bridge.tools import Tool, tool


def resolve(reference: str, folder: Path) -> list[Tool]:
    """The tools that a reference names: `file.py:name`, `package.module:name`, with `*` every `@tool` of the module.

    Modules are found as the interpreter finds them, then in `folder`, which is appended to `sys.path`; a file is
    imported once, however often it is named.

    Raises:
        BridgeError: No such file, module or name; the module fails; the function cannot become a tool.
    """
    place, sign, name = reference.rpartition(":")
    if not sign or not place or not name:
        raise ConfigurationError(f'write "file.py:function" or "package.module:function", not {reference!r}')
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # at the end: a file of the project must not stand in for a library's
    module = _file(folder / place, place) if place.endswith(".py") else _module(place)
    if name == "*":
        found = [each for each in vars(module).values() if isinstance(each, Tool)]
        if not found:
            raise ConfigurationError(f"{place} has nothing that @tool made: decorate a function, or name one")
        return list(dict.fromkeys(found))
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            public = [each for each, what in vars(module).items() if callable(what) and not each.startswith("_")]
            raise ConfigurationError(f"{place} has no {name!r}. It has: {', '.join(public) or 'no functions'}")
        value = getattr(value, part)
    if isinstance(value, Tool):
        return [value]
    if not callable(value):
        raise ConfigurationError(f"{reference} is no function but a {type(value).__name__}")
    return [tool(value)]


def _file(path: Path, shown: str) -> ModuleType:
    path = path.resolve()
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"  # two files may share a stem
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ConfigurationError(f"there is no file {path}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # there while it runs: annotations look it up
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _failed(shown, error, str(path)) from error
    return module


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ConfigurationError(
                f"there is no module {error.name!r}, neither installed nor beside the file"
            ) from None
        raise _failed(name, error, "") from error


def _failed(shown: str, error: BaseException, file: str) -> BaseException:
    """What to raise for a module that does not import; a keyboard interrupt stays one."""
    if isinstance(error, BridgeError):
        return ConfigurationError(f"{shown}: {error}")
    if not isinstance(error, (Exception, SystemExit)):
        return error
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines = [error.lineno]
    where = f" at its line {lines[-1]}" if lines and lines[-1] else ""
    return ConfigurationError(f"{shown} failed{where}: {type(error).__name__}: {error}")
