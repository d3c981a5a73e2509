"""The hosted form of programmatic calls, and the plain form that any model speaks: one into the other. Pure.

Hosted: a `program` item, calls with it as `caller`, their outputs, and `program_output`. Plain: a call of the code
tool, and its output; what the program called is no part of the conversation with the model. A program's `call_id` is
that of the model's call. Its `fingerprint` holds what else the vendor wants back of that call, so that a history
without storage is the model's own again, word for word.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from bridge.approval import Answer, Approve, Deny, Verdict
from bridge.dialect import is_list, is_object
from bridge.errors import CatalogError
from bridge.loop import ModelCall
from bridge.offers import vendor_names
from bridge.openai.definitions import HOSTED, function
from bridge.openai.items import SEARCH, json_text
from bridge.openai.turns import Item
from bridge.searching import NAME
from bridge.tools import Tool

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from bridge.approval import ApprovalRequest
    from bridge.code_tool import Answered
    from bridge.results import PendingCall
    from bridge.searching import Search
    from bridge.tools import Entry

PROGRAM: Final = "programmatic"
OURS: Final = "sandbridge"  # `server_label` of an approval for a function, which has no server
_ID: Final = "prog_"  # before the id of the model's call: the id of the program
_CALL_ID: Final = re.compile(r"(?:mcpr_)?call_(.+)_[0-9]+")  # of a program's call or approval: its run's id is in it
_OWN_ID: Final = re.compile(r"_sb[0-9a-f]{16}$")
_CODE_TYPES: Final = frozenset(["custom_tool_call", "function_call"])
_LOADED: Final = "tool_search_output"
_SEARCH_ID: Final = "sbts_"  # before the sealed call of the model, in the ids of a search that is executed here
_HOSTED_ONLY: Final = ("allowed_callers", "output_schema")  # what the definitions of the plain form do not have


def speaks_hosted(tools: Iterable[Item]) -> bool:
    """Whether a request asks for programs."""
    return any(tool.get("type") == HOSTED["type"] for tool in tools)


# ---- tools -----------------------------------------------------------------------------------------------------------


def for_programs(tools: Iterable[Item]) -> list[Tool]:
    """The tools that programs may call, as client-owned ones; the vendor's default is that they may not.

    Raises:
        CatalogError: One that cannot be a tool here.
    """
    made: list[Tool] = []
    for tool in tools:
        inner: Iterable[Item] = tool["tools"] if tool.get("type") == "namespace" else [tool]
        space = tool["name"] if tool.get("type") == "namespace" else None
        made += [_for_programs(each, space) for each in inner if PROGRAM in (each.get("allowed_callers") or ())]
    return made


def _for_programs(tool: Item, namespace: str | None) -> Tool:
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        hint = "; give the server to the executor (mcp.http(...))" if kind == "mcp" else ""
        raise CatalogError(f"a tool of type {kind} is the vendor's, which cannot be called from programs here{hint}")
    schema: Any = {"type": "string"} if kind == "custom" else tool.get("parameters")
    return Tool(
        name=tool["name"],
        defer=bool(tool.get("defer_loading")),
        description=tool.get("description") or "",
        input_schema={"type": "object"} if schema is None else schema,
        output_schema=tool.get("output_schema"),
        callers=frozenset(["programmatic"]),
        server=namespace,
        require_approval=None if namespace is None else "never",  # as for functions: a rule may ask all the same
    )


def definition_of(entry: Entry, tools: Iterable[Item]) -> Item:
    """How a tool that programs may call is told of: as the application defined it, if it is one of its own."""
    for tool in tools:
        if tool.get("type") == "namespace" and entry.tool.server == tool["name"]:
            if inner := [each for each in tool["tools"] if each["name"] == entry.tool.name]:
                return tool | {"tools": inner}
        elif entry.tool.server is None and tool.get("name") == entry.tool.name:
            return tool
    made = function(vendor_names([entry.name])[entry.name], entry.tool.description, entry.tool.input_schema)
    return made | {"allowed_callers": [PROGRAM], "defer_loading": True}


def for_model(tools: Sequence[Item], own: Sequence[Item], *, searches: bool = True) -> list[Item]:
    """The tools of the plain form: the code tool first, then what the model may call by itself.

    Args:
        own: The code tool, and the search where there is one.
        searches: The model's API has a tool search: it is kept for what the model itself may call.
    """
    made = [*own, *(plain for tool in tools if (plain := _plain_tool(tool)) is not None)]
    kept = searches and any(tool.get("defer_loading") for tool in flat(made))
    return [tool for tool in made if tool.get("type") != "tool_search" or kept or tool.get("execution") == "client"]


def flat(tools: Iterable[Item]) -> list[Item]:
    """Tools, those of namespaces among them."""
    return [each for tool in tools for each in (tool["tools"] if tool.get("type") == "namespace" else [tool])]


def _plain_tool(tool: Item) -> Item | None:
    if tool.get("type") == HOSTED["type"] or "direct" not in (tool.get("allowed_callers") or ["direct"]):
        return None
    made = {name: part for name, part in tool.items() if name not in _HOSTED_ONLY}
    if tool.get("type") == "namespace":
        inner = [plain for each in tool["tools"] if (plain := _plain_tool(each)) is not None]
        return made | {"tools": inner} if inner else None
    return made


def choice_for_model(choice: Any, code_tool: Item) -> Any:
    """`tool_choice` in the plain form."""
    if not is_object(choice):
        return choice
    if choice.get("type") == HOSTED["type"]:
        return {"type": code_tool["type"], "name": code_tool["name"]}
    if choice.get("type") == "allowed_tools":
        return choice | {"tools": [choice_for_model(each, code_tool) for each in choice["tools"]]}
    return choice


# ---- the conversation, as the model has it ---------------------------------------------------------------------------


def plain_items(items: Iterable[Item], code_tool: Item, search: Search | None = None) -> list[Item]:
    """A history in the hosted form as the model knows it; `search` says again what searches came to."""
    made: list[Item] = []
    nested: set[str] = set()  # calls of programs: they and their outputs are not the model's own
    types: dict[str, str] = {}  # call_id of a program -> type of the model's call
    for item in items:
        kind = item.get("type", "message")
        if made_by(item) is not None:
            nested.add(item.get("call_id") or item["id"])
        elif (item.get("call_id") or item.get("approval_request_id")) in nested:
            continue
        elif kind == "program":
            call = _call_of(item, code_tool)
            types[item["call_id"]] = call["type"]
            made.append(call)
        elif search is not None and (searched := searched_by(item)) is not None:
            call = ModelCall(id=searched["call_id"], name=searched["name"], arguments=searched["arguments"])
            is_end = kind == _LOADED
            made.append(plain_output(call.id, search.said(call), "function") if is_end else searched)
        elif kind == _LOADED:
            found: list[Item] = item["tools"]
            made.append(item | {"tools": [plain for each in found if (plain := _plain_tool(each)) is not None]})
        elif kind == "program_output":
            called: str = types.get(item["call_id"]) or code_tool["type"]
            made.append(plain_output(item["call_id"], item["result"], called))
        else:
            made.append({name: part for name, part in item.items() if name != "caller"})
    return made


def plain_output(call_id: str, text: str, called: str) -> Item:
    """The output of a call of the code tool, as the model reads it."""
    kind = "custom_tool_call_output" if called in ("custom", "custom_tool_call") else "function_call_output"
    return {"type": kind, "call_id": call_id, "output": text}


def made_by(item: Item) -> str | None:
    """The `call_id` of the program that made a call, or that its output names; None where there is none."""
    caller = item.get("caller")
    return caller.get("caller_id") if is_object(caller) and caller.get("type") == "program" else None


def is_code(item: Item, code_tool: Item) -> bool:
    """Whether an item is a call of the code tool."""
    return item.get("type") in _CODE_TYPES and item.get("name") == code_tool["name"]


# ---- searches --------------------------------------------------------------------------------------------------------


def loaded_for_programs(items: Iterable[Item]) -> list[str]:
    """Names of tools that the application loaded by a search of its own, and that only programs may call."""
    found = [item for item in items if item.get("type") == _LOADED and searched_by(item) is None]
    tools = flat(tool for item in found for tool in item["tools"])
    return [tool["name"] for tool in tools if "direct" not in (tool.get("allowed_callers") or ["direct"])]


def is_search(item: Item) -> bool:
    """Whether an item is a call of the search that is executed here; that it is offered is the caller's to know."""
    return item.get("type") == "function_call" and item.get("name") == NAME


def search_item(call: Item) -> Item:
    """A model's call of the search, as the hosted form has those that the service executes itself."""
    try:
        given = json.loads(call["arguments"])
    except (ValueError, RecursionError):
        given = {}
    made: Item = {"type": SEARCH, "id": f"{_SEARCH_ID}{_sealed(call)}", "call_id": None, "execution": "server"}
    return made | {"arguments": given, "status": "completed"}


def search_output(call: Item, tools: Iterable[Item]) -> Item:
    """What it found: definitions, where the model reads declarations."""
    made: Item = {"type": _LOADED, "id": f"{_SEARCH_ID}{_sealed(call)}", "call_id": None, "execution": "server"}
    return made | {"status": "completed", "tools": list(tools)}


def searched_by(item: Item) -> Item | None:
    """The model's call behind a search or its output; None where it was not executed here."""
    if item.get("type") not in (SEARCH, _LOADED) or not str(item.get("id")).startswith(_SEARCH_ID):
        return None
    call = _unsealed(item["id"].removeprefix(_SEARCH_ID))
    return call if is_object(call) and is_search(call) else None


def _sealed(call: Item) -> str:
    return base64.urlsafe_b64encode(zlib.compress(json_text(call).encode())).decode()


def _unsealed(text: str) -> Any:
    try:
        return json.loads(zlib.decompress(base64.urlsafe_b64decode(text)))
    except (ValueError, zlib.error):
        return None


# ---- programs --------------------------------------------------------------------------------------------------------


def program_item(call: Item, code: str, code_tool: Item) -> Item:
    """A model's call of the code tool as a `program`; `code` is the program in it."""
    made: Item = {
        "type": "program",
        "id": _ID + (call.get("id") or secrets.token_hex(12)),
        "call_id": call["call_id"],
        "code": code,
        "fingerprint": secrets.token_urlsafe(16),
    }
    if _call_of(made, code_tool) != call:
        made["fingerprint"] += f".{_sealed(call)}"
    return made


def _call_of(program: Item, code_tool: Item) -> Item:
    """The model's call again. A fingerprint that is not ours, or was damaged, is no reason to give up."""
    sealed = program["fingerprint"].partition(".")[2]
    if sealed:
        call = _unsealed(sealed)
        if is_object(call) and call.get("call_id") == program["call_id"] and call.get("type") in _CODE_TYPES:
            return call
    own = program["id"].removeprefix(_ID)
    made: Item = {"id": own, "call_id": program["call_id"], "name": code_tool["name"]}
    if code_tool["type"] == "custom":
        return {"type": "custom_tool_call", **made, "input": program["code"]}
    return {
        "type": "function_call",
        **made,
        "arguments": json_text({"program": program["code"]}),
        "status": "completed",
    }


def program_output(answered: Answered) -> Item:
    """The end of a program: `completed`, for clients take `incomplete` as not ended; a failure is in the text."""
    text = answered.text if answered.failed or answered.result is None else answered.result.body
    if answered.result is not None and (count := len(answered.result.images)):
        text += f"\n[sandbridge] {count} picture(s) are not shown: the result of a program is text"
    made = {"id": f"out_{answered.id}", "call_id": answered.id, "result": text, "status": "completed"}
    return {"type": "program_output", **made}


# ---- calls of programs -----------------------------------------------------------------------------------------------


def call_item(call: PendingCall, program: str, tools: dict[str, Tool]) -> Item:
    """A call that the application is to answer. `program`: `call_id` of its program."""
    identity, tool = call_id(call), tools.get(call.tool)
    caller = {"type": "program", "caller_id": program}
    name = call.tool if tool is None else tool.name
    if tool is not None and isinstance(call.arguments, str):
        made: Item = {"type": "custom_tool_call", "id": f"ctc_{identity}", "call_id": identity, "name": name}
        made["input"] = call.arguments
    else:
        made = {"type": "function_call", "id": f"fc_{identity}", "call_id": identity, "name": name}
        made |= {"arguments": json_text(call.arguments), "status": "completed"}
    if tool is not None and tool.server is not None:
        made["namespace"] = tool.server
    return made | {"caller": caller}


def approval_item(request: ApprovalRequest, program: str) -> Item:
    """A call that waits for a verdict."""
    return {
        "type": "mcp_approval_request",
        "id": f"mcpr_{call_id(request)}",
        "name": request.tool.rpartition("/")[2],
        "server_label": request.server or OURS,
        "arguments": json_text(request.arguments),
        "caller": {"type": "program", "caller_id": program},
    }


def is_request(call: PendingCall | ApprovalRequest) -> TypeIs[ApprovalRequest]:
    """Whether it is a verdict that is waited for."""
    return hasattr(call, "arguments_digest")


def call_id(call: PendingCall | ApprovalRequest) -> str:
    """The id of a program's call on the wire."""
    return "call_" + call.id.replace(".", "_")


def live_programs(items: Iterable[Item]) -> dict[str, str]:
    """`call_id` of each program in a request that has not ended -> id of its run, which its calls' ids hold."""
    found: dict[str, str] = {}
    ended: set[str] = set()
    for item in items:
        parent = made_by(item)
        if parent is not None:
            held = _CALL_ID.fullmatch(item.get("call_id") or item["id"])
            found[parent] = held[1] if held else found.get(parent, "")
        elif item.get("type") == "program":
            found.setdefault(item["call_id"], "")
        elif item.get("type") == "program_output":
            ended.add(item["call_id"])
    return {call_id: run_id for call_id, run_id in found.items() if call_id not in ended}


def direct_calls(items: Iterable[Item]) -> set[str]:
    """Calls of the model itself that a request has or answers, as far as it says."""
    own = [item for item in items if str(item.get("type")).endswith(("_call", "_call_output")) and not made_by(item)]
    return {item["call_id"] for item in own if item.get("call_id") and not _CALL_ID.match(item["call_id"])}


def id_that_waits(vendors: str) -> str:
    """An id for a response of ours that goes on from one of the vendor's."""
    return f"{vendors}_sb{secrets.token_hex(8)}"


def vendors_id(own: str) -> str:
    """The vendor's id in one of ours."""
    return _OWN_ID.sub("", own)


def answer_of(item: Item, *, declared: bool) -> Answer:
    """What the application answered, as the program gets it.

    Args:
        declared: The tool has an output schema: the text is JSON text then. Without one, an object or a list is parsed,
            and other text stays text.
    """
    output = item.get("output")
    if is_list(output):
        return Answer(_content(cast("Sequence[Item]", output)))
    text = str(output)
    if declared or text.lstrip()[:1] in ("{", "["):
        try:
            return Answer(json.loads(text))
        except (ValueError, RecursionError):
            pass
    return Answer(text)


def _content(parts: Sequence[Item]) -> Any:
    text = "".join(part["text"] for part in parts if part.get("type") == "input_text")
    images = [part.get("image_url") or part.get("file_id") for part in parts if part.get("type") == "input_image"]
    files = [part for part in parts if part.get("type") == "input_file"]
    return {"text": text, "images": images, "resources": files} if images or files else text


def verdict_of(item: Item) -> Verdict:
    """What the application said to a call that waits for a verdict."""
    return Approve() if item.get("approve") is True else Deny(item.get("reason") or "")
