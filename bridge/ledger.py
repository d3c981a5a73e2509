"""What a run put into a model's context, against what the same calls would have put there, made directly.

This module decides what is counted, and how; the context benchmark counts by the same rules.

- Both sides are counted on the wire: the compact JSON text of the items of a request (the Responses format; the other
  formats differ by less than 2%), added up over all requests, since every request sends again what came before it.
- The other side is the strongest way without programs: all calls that could be made together are made together, in one
  message, and no reply shows more than the program's text may (`Limits.output_bytes`). It has one request for each
  level of calls, and one that reads the last replies.
- A call's level is one more than that of the reply that the program was waiting for when it made the call (the lowest,
  where several came together): as few requests as possible, so that the other side is never made worse than it is.
- Left out on both sides is what is the same on both: the system's and the user's words, and the final answer.
- A run is a loss where it is one: `saved` is negative then. A call whose reply came from an earlier run is in that
  run's ledger.

Sizes in bytes are always there. For tokens the texts are needed, and they are kept only once `tokens.load` was called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from bridge import tokens
from bridge.approval import canonical

if TYPE_CHECKING:
    from bridge.results import CallRow
    from bridge.tools import Catalog, Entry

_CALL_ID: Final = "call_00000000"  # ids are of one length, so that no count depends on them
_CODE_TOOL: Final = "run_program"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One way of working, in one unit.

    Attributes:
        requests: How often the model is asked.
        definitions: What it must know of the tools: their schemas, or the code tool's with all declarations. Once.
        calls: What it writes: the calls, or the program.
        results: What it reads: the replies (or errors), or the program's text. Once.
        resent: All of these each further time that they are sent: every request holds all that came before it.
        total: The sum: input and output of all requests.
    """

    requests: int
    definitions: int
    calls: int
    results: int
    resent: int
    total: int


@dataclass(frozen=True, kw_only=True)
class ToolCount:
    """One tool's part of the direct side: its calls, what they wrote and read, its definition, and all as re-sent."""

    calls: int
    arguments: int
    replies: int
    definition: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Count:
    """Both sides in one unit. `saved` is negative where the program cost more; `by_tool` in order of first use."""

    direct: Side
    program: Side
    saved: int
    by_tool: Mapping[str, ToolCount]

    @property
    def saved_share(self) -> float:
        """What part of the direct side was saved: 0.9 is 90% less, -0.5 is half as much again."""
        return self.saved / self.direct.total if self.direct.total else 0.0


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What a run knows of its calls beyond their rows, by call id.

    Attributes:
        catalog: Its tools; None counts no definitions on either side.
        replies: JSON text of each value that came back.
        levels: See `Levels`; 1 where nothing is said.
        cap_bytes: What of a reply a model calling directly would be shown, at most.
    """

    catalog: Catalog | None = None
    replies: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    levels: Mapping[str, int] = field(default_factory=dict[str, int])
    cap_bytes: int = 64 << 10


class Levels:
    """Which calls of a run could have been made together, told frame by frame."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self._next = 1

    def made(self, numbers: Iterable[int]) -> None:
        """A wave brought these calls."""
        for number in numbers:
            self.of[number] = self._next

    def delivered(self, numbers: Iterable[int]) -> None:
        """A frame took these to the program. Timers alone change nothing: a model has no use for sleeping."""
        known = [self.of[number] for number in numbers if number in self.of]
        if known:
            self._next = 1 + min(known)


class _Call(NamedTuple):  # made for each call at the end of its run: a dataclass takes four times as long
    """One call with the sizes of its two items, and their texts where they were kept."""

    tool: str
    level: int
    call: int
    result: int
    texts: tuple[str, str] | None


class Ledger:
    """The count of one run: what happened, not a promise. Plain data by `to_data`."""

    def __init__(
        self,
        calls: Sequence[_Call],
        program: tuple[int, int],
        texts: tuple[str, str] | None,
        catalog: Catalog | None,
    ) -> None:
        self._calls = calls
        self._program = program
        self._texts = texts
        self._catalog = catalog

    def __repr__(self) -> str:
        count = self.in_bytes
        return f"<Ledger: {count.program.total:,} bytes in place of {count.direct.total:,}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return (self.in_bytes, self.in_tokens) == (other.in_bytes, other.in_tokens)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  as a dataclass with a mapping has it

    def __reduce__(self) -> tuple[Any, ...]:
        return _counted, (self.in_bytes, self.in_tokens)  # what is left of it in another process, without any tool

    @cached_property
    def in_bytes(self) -> Count:
        """Bytes of JSON text in UTF-8."""
        offered = _offered(self._catalog, _bytes)
        return _count(self._calls, [(each.call, each.result) for each in self._calls], self._program, offered)

    @cached_property
    def in_tokens(self) -> Count | None:
        """Tokens of the same texts, each item by itself; None unless `tokens.load` was called before the run ended."""
        counter = tokens.loaded()
        if counter is None or self._texts is None:
            return None
        sizes = [tuple(map(counter.count, each.texts or ("", ""))) for each in self._calls]
        code, text = map(counter.count, self._texts)
        return _count(self._calls, sizes, (code, text), _offered(self._catalog, counter.count))

    def to_data(self) -> dict[str, Any]:
        """Both counts as dicts."""
        return {"in_bytes": msgspec.to_builtins(self.in_bytes), "in_tokens": msgspec.to_builtins(self.in_tokens)}

    def line(self) -> str:
        """The count in one line, for people."""
        count = self.in_tokens or self.in_bytes
        unit = "bytes" if count is not self.in_tokens else "tokens"
        share = f"{abs(count.saved_share):.0%} {'less' if count.saved >= 0 else 'MORE'}"
        return (
            f"context: {count.program.total:,} {unit} with the program, "
            f"{count.direct.total:,} by direct parallel calls: {share}"
        )


def account(rows: Iterable[CallRow], program: str, text: str, traffic: Traffic | None = None) -> Ledger:
    """The ledger of one run. Quick: sizes are taken now, everything else when somebody asks.

    Args:
        rows: Its calls; those that were `reused` are left out.
        program: What the model wrote.
        text: What the model reads.
        traffic: Without it replies count by the size that their rows have, and all calls as made together.
    """
    traffic = traffic or Traffic()
    keep = tokens.loaded() is not None
    calls: list[_Call] = []
    names: dict[str, int] = {}
    for row in rows:
        if row.reused:
            continue
        known = traffic.replies.get(row.id)
        if known is not None:
            result = _size(shown(known, traffic.cap_bytes))
        else:  # without an error either, its reply counts by the size that its row has
            result = _size(row.error) if row.error else min(row.reply_bytes, traffic.cap_bytes)
        name = names.get(row.tool)
        if name is None:
            name = names[row.tool] = _size(_spelled(row.tool))
        sizes = _CALL_BYTES + name + _size(_argument_text(row.arguments)), _RESULT_BYTES + result
        texts = _texts(row, known, traffic.cap_bytes) if keep else None
        calls.append(_Call(row.tool, traffic.levels.get(row.id, 1), *sizes, texts))
    code, read = program_item(program), result_item(text)
    sizes = _bytes(code), _bytes(read)
    return Ledger(calls, sizes, (code, read) if keep else None, traffic.catalog)


def _texts(row: CallRow, known: bytes | None, cap_bytes: int) -> tuple[str, str]:
    """The items of a call, for counting their tokens."""
    call = call_item(_spelled(row.tool), _argument_text(row.arguments))
    return call, result_item(row.error if known is None else shown(known, cap_bytes))


# ---- the items, as they are on the wire -----------------------------------------------------------------------------


def call_item(name: str, arguments: str) -> str:
    """A model's call, as an item of a request."""
    return _json({"type": "function_call", "call_id": _CALL_ID, "name": name, "arguments": arguments})


def result_item(output: str) -> str:
    """What came back for a call, as an item of a request."""
    return _json({"type": "function_call_output", "call_id": _CALL_ID, "output": output})


def program_item(program: str) -> str:
    """A program, as the call of the code tool that carries it."""
    return call_item(_CODE_TOOL, _json({"program": program}))


def tool_item(name: str, description: str, parameters: Any) -> str:
    """A tool, as a request defines it."""
    return _json({"type": "function", "name": name, "description": description, "parameters": parameters})


def shown(reply: bytes, cap_bytes: int) -> str:
    """What a model reads of a reply: a text as it is, all else as JSON; of more than `cap_bytes` the beginning."""
    if reply[:1] == b'"' and len(reply) <= 2 * cap_bytes:
        reply = str(msgspec.json.decode(reply)).encode("utf-8", "replace")
    return reply[:cap_bytes].decode("utf-8", "ignore")


def _size(text: str) -> int:
    """Bytes that a text takes inside a JSON string."""
    try:
        return len(msgspec.json.encode(text)) - 2
    except UnicodeEncodeError:
        return len(canonical(text)) - 2


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return canonical(value)


def _argument_text(arguments: Any) -> str:
    try:
        return _json(arguments)
    except (TypeError, ValueError):  # nothing that a call can have, but rows are data that others make, too
        return ""


def _spelled(tool: str) -> str:
    """A tool's full name as providers allow it."""
    return tool.replace("/", "__").replace(".", "_")


def _definition(entry: Entry) -> str:
    schema = entry.tool.input_schema
    return tool_item(_spelled(entry.name), entry.tool.description, {} if isinstance(schema, bool) else schema)


# What stands around the texts in an item: its size is known without making it, which takes three times as long.
_CALL_BYTES: Final = len(call_item("", ""))
_RESULT_BYTES: Final = len(result_item(""))


# ---- the count ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Offer:
    """What a catalog is on the wire: the definition of each tool, and that of the code tool which declares them all."""

    definitions: Mapping[str, str]
    code_tool: str


_offers: Final[WeakKeyDictionary[Catalog, _Offer]] = WeakKeyDictionary()


def _offer(catalog: Catalog) -> _Offer:
    known = _offers.get(catalog)
    if known is None:
        from bridge.code_tool import SCHEMA, SHORT  # what loops offer, and all that they load
        from bridge.declarations import instructions

        entries = [each for each in catalog.entries if "programmatic" in each.tool.callers and not each.tool.defer]
        code_tool = tool_item(_CODE_TOOL, f"{SHORT}\n\n{instructions(catalog)}", SCHEMA)
        known = _offers[catalog] = _Offer({each.name: _definition(each) for each in entries}, code_tool)
    return known


def _offered(catalog: Catalog | None, size: Callable[[str], int]) -> tuple[Mapping[str, int], int]:
    """Sizes of the definitions, by tool, and of the code tool's."""
    if catalog is None:
        return {}, 0
    offer = _offer(catalog)
    return {name: size(text) for name, text in offer.definitions.items()}, size(offer.code_tool)


def _count(
    calls: Sequence[_Call],
    sizes: Sequence[tuple[int, ...]],
    program: tuple[int, int],
    offered: tuple[Mapping[str, int], int],
) -> Count:
    definitions, code_tool = offered
    steps = {level: step for step, level in enumerate(sorted({each.level for each in calls}))}
    requests = len(steps) + 1
    written: dict[str, list[int]] = {}
    for each, (call, result) in zip(calls, sizes, strict=True):
        later = requests - 1 - steps[each.level]  # requests that hold it
        row = written.setdefault(each.tool, [0, 0, 0, 0])
        for place, amount in enumerate((1, call, result, (call + result) * later + call)):
            row[place] += amount
    by_tool = {
        tool: ToolCount(
            calls=count,
            arguments=arguments,
            replies=replies,
            definition=definitions.get(tool, 0),
            total=total + definitions.get(tool, 0) * requests,
        )
        for tool, (count, arguments, replies, total) in written.items()
    }
    once = sum(definitions.values())
    unused = sum(size for tool, size in definitions.items() if tool not in by_tool)
    total = sum(each.total for each in by_tool.values()) + unused * requests
    asked, read = sum(each.arguments for each in by_tool.values()), sum(each.replies for each in by_tool.values())
    direct = Side(
        requests=requests,
        definitions=once,
        calls=asked,
        results=read,
        resent=total - once - asked - read,
        total=total,
    )
    code, text = program
    side = Side(
        requests=2,
        definitions=code_tool,
        calls=code,
        results=text,
        resent=code_tool + code,
        total=2 * code_tool + 2 * code + text,
    )
    return Count(direct=direct, program=side, saved=direct.total - side.total, by_tool=by_tool)


def _counted(in_bytes: Count, in_tokens: Count | None) -> Ledger:
    ledger = Ledger((), (0, 0), None, None)
    ledger.__dict__.update(in_bytes=in_bytes, in_tokens=in_tokens)
    return ledger
