"""The sections of a configuration file as pydantic models, and what is wrong with one in words for its operator.

Loaded only where there is a file: a run without one does not wait for pydantic.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    create_model,
)

from bridge.approval import escape
from bridge.lines import Lines, Path, line_of
from sandbox import Limits

_SECRET: Final = frozenset({"env", "headers", "token"})  # keys whose values no error shows
_SHOWN: Final = 60  # characters of a wrong value that an error repeats


def _approval(value: Any) -> Any:
    given = cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else {"": value}
    if not given or any(each not in ("always", "never") for each in given.values()):
        raise ValueError('must be "always", "never", or a table of tools with one of these each')
    return cast("Any", value)


def _conditions(value: Any) -> Any:
    if isinstance(value, Mapping) or (isinstance(value, list) and value):
        return cast("Any", value)
    raise ValueError("must be a condition (a table with path, op and value), or a list of conditions")


def _exceptions(value: Any) -> Any:
    if isinstance(value, (str, Mapping)) or (isinstance(value, list) and value):
        return cast("Any", value)
    raise ValueError("must be a pattern, a list of patterns, a condition, or a list of conditions")


_Whole = Annotated[int, Field(gt=0)]
_Seconds = Annotated[FiniteFloat, Field(gt=0)]


class Section(BaseModel):
    """Strict: no unknown keys, and no value of another kind that could be read as the right one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OAuth(Section):
    """Fields of `mcp.OAuth` that a file can hold; `store` is relative to the file."""

    store: str
    scopes: list[str] | None = None
    redirect_uri: str | None = None
    sign_in_s: _Seconds | None = None
    client_name: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None


class Server(Section):
    """A server: the options of `mcp.stdio`, or of `mcp.http`, and `disabled`."""

    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    inherit_env: list[str] | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    token: str | None = None
    oauth: OAuth | None = None
    optional: bool | None = None
    trusted: bool | None = None
    require_approval: Annotated[Any, AfterValidator(_approval)] = None
    allowed_tools: list[str] | None = None
    call_s: _Seconds | None = None
    connect_s: _Seconds | None = None
    max_concurrent: _Whole | None = None
    rate: str | None = None
    disabled: bool = False


class Rule(Section):
    """A rule of the policy; its conditions are read by `predicates`."""

    tool: str
    decision: Literal["allow", "ask", "deny"]
    when: Annotated[Any, AfterValidator(_conditions)] = None
    unless: Annotated[Any, AfterValidator(_exceptions)] = None
    read_only: bool | None = None
    destructive: bool | None = None
    caller: Literal["direct", "programmatic"] | None = None
    server: str | None = None
    reason: str | None = None


class Defaults(Section):
    """What holds where no rule matches."""

    default_functions: Literal["allow", "ask", "deny"] | None = None
    default_servers: Literal["allow", "ask", "deny"] | None = None


def _all_walls(given: Any) -> Any:
    from sandbox import WALLS

    if isinstance(given, str) and given != "all":
        raise ValueError(f'must be "all" or a list of walls: {", ".join(WALLS)}')
    return list(WALLS) if given == "all" else given


class SandboxOptions(Section):
    """Arguments of `sandbox.Sandbox`."""

    jit: bool | None = None
    spares: Annotated[int, Field(ge=0)] | None = None
    max_workers: Annotated[int, Field(ge=1)] | None = None
    max_waiting: Annotated[int, Field(ge=1)] | None = None
    recycle_after: Annotated[int, Field(ge=1)] | None = None
    namespaces: bool | None = None
    bubblewrap: bool | None = None
    require: Annotated[list[str], BeforeValidator(_all_walls)] | None = None


class StoreOptions(Section):
    """Where runs are kept."""

    url: str


_LIMITS: Final[dict[str, Any]] = {
    each.name: (_Whole if isinstance(each.default, int) else _Seconds, each.default)
    for each in dataclasses.fields(Limits)
}
LimitFields: Final[type[Section]] = create_model("LimitFields", __base__=Section, **_LIMITS)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What of a `sandbridge.toml` passed its check. Rules keep their number in the file."""

    functions: list[str]
    limits: dict[str, Any]
    sandbox: dict[str, Any]
    policy: dict[str, Any]
    servers: dict[str, dict[str, Any]]
    rules: dict[int, dict[str, Any]]
    store: dict[str, Any]
    lock: str


TOP: Final[dict[str, type[list[Any] | dict[str, Any] | str]]] = {
    "functions": list,
    "limits": dict,
    "sandbox": dict,
    "policy": dict,
    "servers": dict,
    "rules": list,
    "store": dict,
    "lock": str,
}
_TYPES: Final = {list: "a list", dict: "a table", str: "text"}


class Problems:
    """Everything that is wrong with one file, each with its line and key."""

    def __init__(self, file: str, lines: Lines) -> None:
        self.file = file
        self.lines = lines
        self.found: list[tuple[int, str]] = []

    def where(self, path: Path) -> str:
        """File, line and key, as every text begins."""
        key = f": {key_of(path)}" if path else ""
        return f"{self.file}, line {line_of(self.lines, path)}{key}"

    def add(self, path: Path, text: str) -> None:
        """Note what is wrong with a key."""
        self.found.append((line_of(self.lines, path), f"{self.where(path)}: {text}"))

    def texts(self) -> list[str]:
        """In the order of the file."""
        return [text for _, text in sorted(self.found, key=lambda each: each[0])]

    def check(self, model: type[BaseModel], data: Any, path: Path) -> dict[str, Any] | None:
        """The keys that some data sets; None, and what is wrong is noted, where it does not fit."""
        try:
            return model.model_validate(data).model_dump(exclude_unset=True)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                place: Path = (*path, *each["loc"])
                self.add(place, _said(each["type"], each.get("ctx", {}), each["msg"], each["input"], place))
            return None


def key_of(path: Sequence[str | int]) -> str:
    """A path as people write it: `servers.shop.args[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if re.fullmatch(r"[\w-]+", part) else escape(json.dumps(part, ensure_ascii=False))
            text += f".{word}" if text else word
    return text


def shown(value: Any, path: Path = ()) -> str:
    """A wrong value, as far as an error repeats it."""
    if not _SECRET.isdisjoint(part for part in path if isinstance(part, str)):
        return (
            "true or false"
            if isinstance(value, bool)
            else "a number"
            if isinstance(value, (int, float))
            else "other data"
        )
    text = escape(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def unknown(key: str, known: Sequence[str]) -> str:
    """What to say of a key that does not exist."""
    near = difflib.get_close_matches(key, known, 1)
    return f"there is no such key{f' (did you mean {near[0]}?)' if near else ''}. There are: {', '.join(known)}"


def parts(data: Mapping[str, Any], problems: Problems) -> Parts:
    """Check a `sandbridge.toml` part by part, so that one mistake hides no other."""
    given: dict[str, Any] = {}
    for key, kind in TOP.items():
        part = data.get(key, kind())
        if not isinstance(part, kind):
            problems.add((key,), f"must be {_TYPES[kind]}, not {shown(part)}")
        given[key] = part if isinstance(part, kind) else kind()
    for key in data:
        if key not in TOP:
            problems.add((key,), unknown(key, list(TOP)))
    functions: list[str] = []
    for number, each in enumerate(given["functions"]):
        if isinstance(each, str):
            functions.append(each)
        else:
            problems.add(("functions", number), f"must be text, not {shown(each)}")
    servers = {name: problems.check(Server, each, ("servers", name)) for name, each in given["servers"].items()}
    rules = {number: problems.check(Rule, each, ("rules", number)) for number, each in enumerate(given["rules"])}
    return Parts(
        functions=functions,
        limits=problems.check(LimitFields, given["limits"], ("limits",)) or {},
        sandbox=problems.check(SandboxOptions, given["sandbox"], ("sandbox",)) or {},
        policy=problems.check(Defaults, given["policy"], ("policy",)) or {},
        servers={name: each for name, each in servers.items() if each is not None},
        rules={number: each for number, each in rules.items() if each is not None},
        lock=given["lock"],
        store=(problems.check(StoreOptions, given["store"], ("store",)) or {}) if given["store"] else {},
    )


def _known(path: Path) -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        "limits": LimitFields,
        "sandbox": SandboxOptions,
        "policy": Defaults,
        "servers": Server,
        "mcpServers": Server,
        "rules": Rule,
        "store": StoreOptions,
    }
    if path[2:3] == ("oauth",):
        return list(OAuth.model_fields)
    return list(sections[str(path[0])].model_fields)


_KINDS: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "finite_number": "a finite number",
}


def _said(kind: str, context: Mapping[str, Any], message: str, value: Any, path: Path) -> str:
    if kind == "extra_forbidden":
        return unknown(str(path[-1]), _known(path))
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return f"{context['error']}, not {shown(value, path)}"
    wanted = _KINDS.get(kind, "")
    if kind == "literal_error":
        wanted = str(context["expected"]).replace("'", '"')
    elif kind == "greater_than":
        wanted = f"above {context['gt']:g}"
    elif kind == "greater_than_equal":
        wanted = f"{context['ge']} or more"
    return f"must be {wanted}, not {shown(value, path)}" if wanted else message
