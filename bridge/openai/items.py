"""Items of the Responses wire as plain data: what a response calls for, and what goes back for it.

Pure. Items are read from `to_dict()` of the SDK's objects, so that a field that the SDK does not know comes back to the
vendor as it came. Who may answer a call, and with what, is decided elsewhere (answering.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from bridge.approval import canonical
from bridge.code_tool import Answered, ModelCall
from bridge.dialect import is_object
from bridge.loop import told_apart
from bridge.openai.turns import Item
from bridge.searching import NAME

if TYPE_CHECKING:
    from bridge.pictures import Picture

SEARCH: Final = "tool_search_call"
OUTPUT_CHARACTERS: Final = 10_485_760  # of one output; the vendor refuses the whole request for a longer one
CALLS: Final = frozenset(["function_call", "custom_tool_call", "mcp_approval_request", SEARCH])
# Calls that wait for the application, and that no executor can answer: it has no shell, no screen, no patches.
FOREIGN: Final = frozenset(["shell_call", "local_shell_call", "apply_patch_call", "computer_call"])

_ONCE: Final = (
    "[sandbridge] note: {count} calls of this response had the same id, so only the first was carried out, and this is "
    "its answer; send the others again"
)


def plain(value: Any) -> Any:
    """An item, or a list of them, as plain data: what the SDK has models for, and what is plain already."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if hasattr(value, "to_dict"):
        return value.to_dict(mode="json")
    return value


def listed(given: Any) -> list[Item]:
    """What `input` holds, as items; a text is a message of the user."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [] if given is None else plain(list(given))


@dataclass(frozen=True)
class Called:
    """One item that waits for an answer.

    Attributes:
        id: What the answer is given for: `call_id`, or the `id` of an approval request.
        parent: `call_id` of the vendor's program that made the call; None for a call of the model itself.
        cut: The response ended in the middle of it.
    """

    item: Item
    id: str
    parent: str | None
    cut: bool = False

    @property
    def model_call(self) -> ModelCall:
        """The call, whoever made it."""
        raw = self.item["input"] if self.item["type"] == "custom_tool_call" else None
        name = NAME if self.item["type"] == SEARCH else self.item["name"]
        return ModelCall(id=self.id, name=name, arguments=self.item.get("arguments"), program=raw)


@dataclass
class Programs:
    """The programs of one conversation that the vendor runs. Live: written, and not ended with `completed`."""

    code: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    listed: dict[tuple[str, str], Item] = field(default_factory=dict)  # MCP tools that the vendor knows
    calls: dict[str, str] = field(default_factory=dict)  # id of each call that was answered -> id of its response

    def saw(self, items: Iterable[Item]) -> None:
        """Take in items, in order."""
        for item in items:
            match item.get("type"):
                case "program":
                    self.code[item["call_id"]] = item["code"]
                    self.ended.discard(item["call_id"])
                case "program_output" if item.get("status") == "completed":
                    self.ended.add(item["call_id"])
                case "mcp_list_tools":
                    known = {(item["server_label"], tool["name"]): tool for tool in item.get("tools") or ()}
                    self.listed.update(known)
                case _:
                    pass

    def answered(self, items: Iterable[Item], response_id: str = "") -> None:
        """Take in whose calls they are: their ids tell them apart from those that come later."""
        self.calls |= {identity_of(item): response_id for item in items if is_call(item)}

    def apart(self, items: list[Item], response_id: str) -> list[Item]:
        """A response's items with new ids for calls of the model that have one of a call before them.

        What a program of the vendor's called keeps its id, by which that program waits for it.
        """
        own = [item for item in items if is_own(item)]
        taken = [each for each, owner in self.calls.items() if owner != response_id]
        taken += [identity_of(item) for item in items if is_call(item) and not is_own(item)]
        ids = iter(told_apart((identity_of(item) for item in own), taken))
        return [renamed(item, next(ids)) if is_own(item) else item for item in items]

    def fault(self, parent: str) -> str | None:
        """Why a call cannot have this parent; None where it can."""
        if parent not in self.code:
            return f"its caller {parent!r} is no program of this conversation"
        if parent in self.ended:
            return f"its caller {parent!r} is a program that has ended"
        return None


def is_call(item: Item) -> bool:
    """Whether an item waits for an answer of the client. A search that the vendor carries out itself does not."""
    return item.get("type") in CALLS and (item["type"] != SEARCH or item.get("execution") == "client")


def is_own(item: Item) -> bool:
    """Whether it is a call of the model itself."""
    return is_call(item) and item["type"] != "mcp_approval_request" and _parent(item.get("caller")) is None


def identity_of(item: Item) -> str:
    """What the answer to a call is given for."""
    return str(item["id"] if item["type"] == "mcp_approval_request" else item.get("call_id") or item.get("id") or "")


def renamed(item: Item, identity: str) -> Item:
    """A call with another id. The item's own `id` goes with the old one: it names what the vendor has."""
    if identity == identity_of(item):
        return item
    return {name: part for name, part in item.items() if name != "id"} | {"call_id": identity}


def called(output: Iterable[Item], *, status: str | None) -> list[Called]:
    """What a response calls for, in its order. In an incomplete one the last call may be cut."""
    items = list(output)
    found: list[Called] = []
    for position, item in enumerate(items):
        if is_call(item):
            parent = _parent(item.get("caller"))
            last = position == len(items) - 1 and item.get("status") != "completed"
            cut = item.get("status") == "incomplete" or (status == "incomplete" and last)
            found.append(Called(item, identity_of(item), parent, cut))
    return found


def _parent(caller: Any) -> str | None:
    """The program that made a call; None for the model. Whoever is not plainly `direct` must be a live program."""
    if not caller or (is_object(caller) and caller.get("type") in (None, "direct")):
        return None
    return str(caller.get("caller_id")) if is_object(caller) else ""


def is_final(output: Iterable[Item]) -> bool:
    """Whether it holds a message that ends a turn: text or a refusal, not commentary on the way."""
    return any(item.get("type") == "message" and item.get("phase") != "commentary" for item in output)


def spoken(output: Iterable[Item]) -> str:
    """The text of all messages, refusals included."""
    parts = [part for item in output if item.get("type") == "message" for part in item.get("content") or ()]
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


# ---- what goes back ----------------------------------------------------------------------------------------------


def with_note(text: str, again: int) -> str:
    """An answer that says that calls with the same id were not carried out."""
    return f"{text}\n{_ONCE.format(count=again + 1)}" if again else text


def output(call: Called, text: str, pictures: Iterable[Picture] = ()) -> Item:
    """The output item for a function or custom call; `caller` goes back unchanged."""
    kind: Literal["function_call_output", "custom_tool_call_output"]
    kind = "function_call_output" if call.item["type"] == "function_call" else "custom_tool_call_output"
    shown = [
        {"type": "input_image", "image_url": f"data:{each.kind};base64,{each.data}", "detail": "auto"}
        for each in pictures
    ]
    content = [{"type": "input_text", "text": text}, *shown] if shown else text
    made: Item = {"type": kind, "call_id": call.id, "output": content}
    if call.item.get("caller") is not None:
        made["caller"] = call.item["caller"]
    return made


def for_program(answered: Answered, *, declared: bool) -> str:
    """What a program of the vendor gets. The wire has no sign for a failure: it is told inside the value.

    Args:
        declared: The tool has an output schema: a text is JSON text then, as the schema says of it.
    """
    result = answered.result
    if not answered.failed and result is not None:
        value = result.value
        text = value if isinstance(value, str) and not declared else json_text(value)
        if len(text) <= OUTPUT_CHARACTERS:
            return text
        said = f"the result has {len(text):,} characters, more than the {OUTPUT_CHARACTERS:,} that an output may have"
        failure: Item = {"code": "too_large", "message": said, "retryable": False}
        return json_text({"error": failure | {"tool": answered.name}})
    if not answered.failed:  # its result stayed behind in another process: the text is the whole value
        return answered.text
    if result is None or result.error is None:
        code, message = _code(answered.text)
        failure = {"code": code, "message": message, "retryable": False}
    else:
        failure = {"code": result.error.code, "message": result.error.message, "retryable": bool(result.error.hint)}
    return json_text({"error": failure | {"tool": answered.name}})


def json_text(value: Any) -> str:
    """JSON text of plain data, whatever is in it."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return canonical(value)


def _code(text: str) -> tuple[str, str]:
    code, found, message = text.removeprefix("[sandbridge] error ").removeprefix("Error: ").partition(": ")
    return (code, message) if found and code.isidentifier() else ("failed", text)


def loaded(call: Called, tools: Iterable[Item]) -> Item:
    """The answer to a search: definitions, which the vendor has from then on. There is no place for words in it."""
    made: Item = {"type": "tool_search_output", "call_id": call.item.get("call_id"), "execution": "client"}
    return made | {"status": "completed", "tools": list(tools)}


def approval(call: Called, *, approve: bool, reason: str = "") -> Item:
    """The answer to an approval request of a server that the vendor calls."""
    made: Item = {"type": "mcp_approval_response", "approval_request_id": call.id, "approve": approve}
    return made | ({"reason": reason} if reason else {})
