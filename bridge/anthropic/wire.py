"""Messages of the Anthropic API as plain data: blocks that are sent back, calls in them, results for them. No I/O.

Rules of the API that this module keeps: what the model sent goes back as it came, unknown fields included (but for ids
that were there before: no `tool_use` may have one of another); a message of
results holds nothing but `tool_result` blocks, one for every `tool_use` of the message before it, in its order; empty
messages are not sent; the input of the application is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from bridge.loop import Answered, ModelCall, told_apart

Block = dict[str, Any]
CODE_EXECUTION: Final = "code_execution"
HOSTED: Final = (
    "code_execution_20260120"  # the first version that can call tools; later ones answer under this name too
)
_CUT: Final = frozenset({"max_tokens", "model_context_window_exceeded"})  # the model was stopped in mid-word


def plain(value: Any) -> Any:
    """A block, message or list of them as plain data: what the SDK has models for, and what is data already."""
    if hasattr(value, "to_dict"):
        return value.to_dict(mode="json")
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in cast("Sequence[Any]", value)]
    return value


def field(message: Any, name: str) -> Any:
    """A field of a message, whether it is the SDK's model or plain data; None where there is none."""
    if isinstance(message, Mapping):
        return cast("Mapping[str, Any]", message).get(name)
    return getattr(message, name, None)


def content_of(message: Any) -> list[Block]:
    """The blocks of a message in the form in which they are sent back; none for one whose content is a text.

    Left out are fields that are null (requests may not have those) and what the SDK itself added on parsing.
    """
    content = plain(field(message, "content"))
    if not isinstance(content, list):
        return []
    return [
        {key: part for key, part in block.items() if part is not None and key != "parsed_output"}
        for block in cast("list[Block]", content)
    ]


@dataclass(frozen=True)
class Caller:
    """Who made a call: the model itself (`program` is None), or the program that this id names."""

    program: str | None = None


def caller_of(block: Block) -> Caller:
    """The caller of a `tool_use`. Whatever is not plainly `direct` is a program's: such a call needs a live parent."""
    caller = block.get("caller")
    if caller is None or (isinstance(caller, dict) and cast("Block", caller).get("type") == "direct"):
        return Caller()
    return Caller(str(cast("Block", caller).get("tool_id")) if isinstance(caller, dict) else "")


def searches(tools: Iterable[Any]) -> bool:
    """Whether a tool search of the vendor's own is among tools."""
    return any(str(field(tool, "type")).startswith("tool_search_tool_") for tool in tools)


def calls_in(content: Iterable[Block]) -> list[Block]:
    """The `tool_use` blocks: calls that the client has to answer."""
    return [block for block in content if block.get("type") == "tool_use"]


def model_call(block: Block) -> ModelCall:
    """A `tool_use` block for those who know no vendor."""
    return ModelCall(id=str(block["id"]), name=str(block["name"]), arguments=block.get("input"))


def result(answered: Answered, *, flagged: bool = True) -> Block:
    """A `tool_result` block. A text that is empty is left out, as the API wants it.

    Args:
        flagged: Mark failures with `is_error`. What the flag does within a program is nowhere documented, so results
            for programs go without: their text says it.
    """
    block: Block = {"type": "tool_result", "tool_use_id": answered.id}
    if answered.text:
        block["content"] = answered.text
    if answered.failed and flagged:
        block["is_error"] = True
    return block


class Programs:
    """Which programs of the vendor's code execution run at the moment, by the blocks seen so far; and which calls were
    answered."""

    def __init__(self, messages: Iterable[Any] = ()) -> None:
        self.live: dict[str, str] = {}  # id of the `server_tool_use` -> the program's text
        self.calls: dict[str, str] = {}  # id of each `tool_use` -> id of its response
        self.see_all(messages)

    def see_all(self, messages: Iterable[Any]) -> None:
        """Take in a whole conversation."""
        for message in messages:
            if field(message, "role") == "assistant":
                self.see(content_of(message))
                self.answered(content_of(message))

    def answered(self, content: Iterable[Block], response_id: str = "") -> None:
        """Take in whose calls they are: their ids tell them apart from those that come later."""
        self.calls |= {str(block.get("id")): response_id for block in calls_in(content)}

    def apart(self, content: list[Block], response_id: str) -> list[Block]:
        """A response's blocks with new ids for calls of the model that have one of a call before them.

        What a program of the vendor's called keeps its id, by which that program waits for it.
        """
        own = [block for block in calls_in(content) if caller_of(block).program is None]
        taken = [each for each, owner in self.calls.items() if not response_id or owner != response_id]
        taken += [str(block.get("id")) for block in calls_in(content) if caller_of(block).program is not None]
        made = told_apart((block.get("id") for block in own), taken)
        ids = {id(block): identity for block, identity in zip(own, made, strict=True)}
        return [{**block, "id": ids[id(block)]} if id(block) in ids else block for block in content]

    def see(self, content: Iterable[Block]) -> None:
        """Take in blocks of an assistant's message, in their order."""
        for block in content:
            kind = block.get("type")
            if kind == "server_tool_use" and block.get("name") == CODE_EXECUTION:
                given = block.get("input")
                code = cast("Block", given).get("code") if isinstance(given, dict) else ""
                self.live[str(block.get("id"))] = str(code)
            elif kind == "code_execution_tool_result":
                self.live.pop(str(block.get("tool_use_id")), None)


@dataclass(frozen=True)
class Stop:
    """Why a response ended, in what it means for a loop.

    Attributes:
        reason: The vendor's word.
        cut: The model was stopped in mid-word: its last call may be incomplete, so none is made.
        refused: A safety system ended the response: nothing of it is carried out.
        goes_on: The vendor paused the turn: the message is sent back as it is, and the model continues.
    """

    reason: str

    @property
    def cut(self) -> bool:
        return self.reason in _CUT

    @property
    def refused(self) -> bool:
        return self.reason == "refusal"

    @property
    def goes_on(self) -> bool:
        return self.reason == "pause_turn"


def live_container(container: Any, now: datetime | None = None) -> str | None:
    """The id of a container that has not expired, from a response's `container`; None if there is none."""
    container = plain(container)
    if not isinstance(container, dict):
        return None
    fields = cast("Block", container)
    expires = fields.get("expires_at")
    if isinstance(expires, str):
        try:
            at = datetime.fromisoformat(expires)
        except ValueError:
            return fields.get("id")  # a form that we do not know says nothing
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        if at <= (now or datetime.now(UTC)):
            return None
    return fields.get("id")


def continued(given: Any, last: Any) -> Any:
    """The `container` of the next request: the one of the last response while it lives, else what was given at first.

    Args:
        given: An id, or parameters (skills), which stay; None for nothing.
        last: As the last response had it.
    """
    live = live_container(last)
    if isinstance(given, Mapping):
        fields = {key: part for key, part in cast("Mapping[str, Any]", given).items() if key != "id"}
        return {**fields, "id": live} if live is not None else fields or None
    return live
