"""What is done about one response of the Responses API: who answers each call, and what goes back to the vendor.

Decides the origin of each call: the code tool or a tool beside it (the model's own calls, code_tool.py), a program that
the vendor runs (its parent must be known and not ended), an MCP server that the vendor calls (approvals.py), or the
application. All of one response are started together, and one pause holds them together.

An id that a server gives twice cannot tell calls apart. Where the whole history is sent, the later call gets a new one,
in the history and in its answer alike. Where the vendor keeps the history, only the first of a response is carried out,
and its answer says so; an id of an earlier response is the vendor's to tell apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from bridge.code_tool import TOOL_NAME, Answered, CodeTool, ModelCall, read_arguments
from bridge.direct import ToolCall
from bridge.errors import StateError, ToolError
from bridge.loop import Direct, Part, Refused, Step
from bridge.offers import chosen
from bridge.openai import definitions
from bridge.openai import turns as base
from bridge.openai.approvals import Approvals
from bridge.openai.items import (
    FOREIGN,
    SEARCH,
    Called,
    Programs,
    approval,
    called,
    for_program,
    is_final,
    loaded,
    output,
    plain,
    with_note,
)
from bridge.openai.turns import Item
from bridge.pictures import readable
from bridge.searching import Search

if TYPE_CHECKING:
    from openai.types.responses import Response

    from bridge.executor import Executor
    from bridge.offers import DirectTool
    from sandbox import Limits


class Offer:
    """What a conversation offers to the model, and what it knows of the vendor's programs. Stays over its responses.

    Args:
        hosted: The vendor runs the programs: no code tool of ours is offered.
        leave: Calls of tools that are not the executor's are the application's; else the model is told that there is
            no such tool.
        whole: Whether the whole history can be sent, so that a call can get another id. None: as far as a response
            tells (`handle`).
        budget: As for `CodeTool`; where the vendor runs the programs, it is told of all that is not deferred.
        vendor_searches: The vendor has a tool search of its own in the request: it gets deferred tools to search.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        direct: bool | Iterable[str] = False,
        hosted: bool = False,
        leave: bool = False,
        whole: bool | None = None,
        vendor_searches: bool = False,
        budget: int | None = None,
        name: str = TOOL_NAME,
        inputs: Any = None,
        limits: Limits | None = None,
        context: Any = None,
    ) -> None:
        self.tool = CodeTool(
            executor, direct=direct, budget=budget, name=name, inputs=inputs, limits=limits, context=context
        )
        self.hosted = hosted
        self.leave = leave
        self.whole = whole
        self.programs = Programs()
        self._limits = limits
        self._context = context
        beside = chosen(executor.catalog, direct, deferred=hosted)
        self._hosted = definitions.hosted(executor.catalog, beside)
        self._by_name = self._hosted.tools
        self._direct = {entry.name for entry in beside}
        self._vendor_searches = vendor_searches
        self.search: Search | None = None
        if hosted and self._hosted.deferred and not vendor_searches:
            deferred = [entry for entry in executor.catalog.entries if entry.name in self._hosted.deferred]
            self.search = Search(executor.catalog, deferred)

    def tools(self, *, raw: bool) -> list[Item]:
        """Definitions for the request, the code tool first. The same in every request, whatever was found."""
        if not self.hosted:
            return definitions.of(self.tool, raw=raw)
        if self.search is not None:
            return [*self._hosted.definitions, definitions.search_tool(self.search)]
        return [*self._hosted.definitions, *(self._hosted.deferred.values() if self._vendor_searches else ())]

    @property
    def instructions(self) -> str:
        """What the model has to know beside the definitions."""
        return definitions.FAILURES if self.hosted else self.tool.instructions

    def parts(self, calls: Sequence[Called]) -> list[Part]:
        """What is to be started for the calls of one response."""
        found: list[Part] = []
        own: list[ModelCall] = []
        of_programs: dict[str | None, list[Called]] = {}
        requests: dict[str | None, list[Called]] = {}
        for call in calls:
            fault = None if call.parent is None else self.programs.fault(call.parent)
            if fault is not None:
                found.append(Refused(call.model_call, ToolError("denied", f"{fault}: nothing was called")))
            elif call.item["type"] == SEARCH:
                found.append(self._searched(call.model_call))
            elif call.item["type"] == "mcp_approval_request":
                requests.setdefault(call.parent, []).append(call)
            elif call.parent is not None or self.hosted:
                of_programs.setdefault(call.parent, []).append(call)
            else:
                own.append(call.model_call)
        found += self.tool.parts(own)
        for parent, group in of_programs.items():
            found += self._through_gate(parent, group)
        for parent, group in requests.items():
            found += self._to_approve(parent, group)
        return found

    def _searched(self, call: ModelCall) -> Part:
        if self.search is None:
            return Refused(call, ToolError("unknown_tool", "there is nothing to search"))
        return self.search.part(call)

    def _loaded(self, call: Called, answered: Answered) -> Item:
        """What a search loads. Asked again, it gives the same: also in another process, after a pause."""
        if answered.failed or self.search is None:
            return loaded(call, ())
        entries = self.search.find(call.model_call).entries
        return loaded(call, [self._hosted.deferred[entry.name] for entry in entries])

    def _through_gate(self, parent: str | None, group: Sequence[Called]) -> list[Part]:
        """Calls of tools that the vendor was told of: of one of its programs, or of the model itself."""
        found: list[Part] = []
        sound: list[ModelCall] = []
        made: list[ToolCall] = []
        for call in group:
            try:
                tool = self._known(call)
                made.append(ToolCall(tool.entry.name, tool.arguments(read_arguments(call.model_call))))
                sound.append(call.model_call)
            except ToolError as error:
                found.append(Refused(call.model_call, error))
        if sound:
            options = self._options(parent)
            found.append(Direct(sound, made, **options, limits=self._limits, whole=parent is not None))
        return found

    def _known(self, call: Called) -> DirectTool:
        name = call.item["name"]
        tool = self._by_name.get(name)
        if tool is None or call.item.get("namespace") is not None:
            there = ", ".join(list(self._by_name)[:20]) or "none"
            raise ToolError("unknown_tool", f"there is no tool {name!r}; there is: {there}")
        if call.parent is None and tool.entry.name not in self._direct:
            raise ToolError("denied", f"{name} may be called from within a program only")
        return tool

    def _to_approve(self, parent: str | None, group: Sequence[Called]) -> list[Part]:
        found: list[Part] = []
        sound: list[Called] = []
        given: list[Any] = []
        for call in group:
            try:
                given.append(read_arguments(call.model_call))
                sound.append(call)
            except ToolError as error:
                found.append(Refused(call.model_call, error))
        if sound:
            servers = [call.item["server_label"] for call in sound]
            calls = [call.model_call for call in sound]
            found.append(Approvals(calls, given, servers, known=self.programs.listed, **self._options(parent)))
        return found

    def _options(self, parent: str | None) -> dict[str, Any]:
        caller = "direct" if parent is None else "programmatic"
        code = "" if parent is None else self.programs.code[parent]
        return {"caller": caller, "program": code, "context": self._context}

    def answer(self, call: Called, answered: Answered, parts: Sequence[Part]) -> Item:
        """The item that goes back for a call."""
        if call.item["type"] == SEARCH:
            return self._loaded(call, answered)
        if call.item["type"] == "mcp_approval_request":
            asked = next((each for each in parts if isinstance(each, Approvals) and each.has(call.id)), None)
            approve, reason = asked.verdict(answered) if asked is not None else (False, answered.text)
            return approval(call, approve=approve, reason=reason)
        if call.parent is not None:
            tool = self._by_name.get(call.item["name"])
            declared = tool is not None and tool.entry.tool.output_schema is not None
            return output(call, for_program(answered, declared=declared))
        images = answered.result.images if answered.result is not None else ()
        pictures, left_out = readable(images, self.tool.executor.fetch)
        return output(call, "\n".join([answered.text, *left_out]), pictures)

    def is_ours(self, item: Item) -> bool:
        """Whether the executor answers a call, rather than the application."""
        if item["type"] == "mcp_approval_request" or not self.leave:
            return True
        if item["type"] == SEARCH:
            return self.search is not None
        return item["name"] in self._by_name or self.tool.answers_to(item["name"])

    def sends_whole(self, response: Response) -> bool:
        """Whether the whole history is sent after this response."""
        if self.whole is not None:
            return self.whole
        if response.previous_response_id is not None or response.conversation is not None:
            return False
        return getattr(response, "store", None) is False or bool(self.programs.calls)  # known, and no chain


class Turn(base.Turn):
    """One response of the Responses API with what the executor did about it; `items` are input items."""

    def __init__(self, response: Response, offer: Offer, step: Step, parts: Sequence[Part], given: _Given) -> None:
        cut = {call.id: call.model_call.name for call in given.cut}
        reason = given.reason
        super().__init__(response, step, calls=bool(given.calls), left=given.left, cut=cut, reason=reason)
        self.offer = offer  # the next response is handled with the same
        self._parts = parts
        self._given = given

    @property
    def own(self) -> list[Answered]:
        programs = {call.id for call in self._given.all if call.parent is not None}
        return [answered for answered in self.answers if answered.id not in programs]

    @property
    def items(self) -> list[Item]:
        answers = {answered.id: answered for answered in self.answers}
        for call in self._given.all:
            if call.parent is None:
                text = with_note(answers[call.id].text, self._given.again.get(call.id, 0))
                answers[call.id] = dataclasses.replace(answers[call.id], text=text)
        return [self.offer.answer(call, answers[call.id], self._parts) for call in self._given.all]

    @property
    def renamed(self) -> bool:
        """Whether calls have other ids than the vendor gave them: it has to be sent the whole history then."""
        return self._given.renamed

    @property
    def transcript(self) -> list[Item]:
        own = list(self._given.items)
        while self.status == "incomplete" and own and own[-1].get("type") == "reasoning":
            own.pop()  # the vendor takes none without what followed it
        return [*own, *self.items]

    @property
    def _ending(self) -> Literal["continue", "finished", "incomplete"]:
        if self.response.status == "incomplete":
            return "incomplete"
        return "finished" if is_final(self._given.items) else "continue"


class _Given:
    """The items of a response, by who answers them."""

    def __init__(self, response: Response, offer: Offer) -> None:
        own: list[Item] = plain(response.output)
        self.items = offer.programs.apart(own, response.id) if offer.sends_whole(response) else own
        self.renamed = self.items != own
        details = response.incomplete_details
        self.reason = (details.reason if details is not None else None) or "incomplete"
        found = called(self.items, status=response.status)
        self.again: dict[str, int] = {}  # id -> how many calls have it that are not carried out
        first: dict[str, Called] = {}
        for call in found:
            if first.setdefault(call.id, call) is not call:
                self.again[call.id] = self.again.get(call.id, 0) + 1
                self.items = [item for item in self.items if item is not call.item]
        found = list(first.values())
        stopped = response.status == "incomplete" and self.reason != "max_output_tokens"  # none of its calls is meant
        self.cut = [call for call in found if call.cut or stopped]
        self.all = [call for call in found if call in self.cut or offer.is_ours(call.item)]
        self.calls = [call for call in self.all if call not in self.cut]
        self.left: list[Item] = [call.item for call in found if call not in self.all]
        self.left += [item for item in self.items if item.get("type") in FOREIGN]


async def answer(response: Response, offer: Offer, refusal: ToolError | None = None) -> Turn:
    """Answer what one response calls for; returns when all is answered, or when the rest waits for people.

    Args:
        refusal: Make none of the calls, and say this of each.

    Raises:
        StateError: The response failed or is not there yet (`background`): there is nothing to answer.
        SandboxError: V8 or the walls are not there.
    """
    if response.status not in (None, "completed", "incomplete"):
        error = f": {response.error.code}: {response.error.message}" if response.error else ""
        raise StateError(f"response {response.id} is {response.status}{error}: there is nothing to answer")
    given = _Given(response, offer)
    offer.programs.saw(given.items)
    calls = [call.model_call for call in given.calls]
    parts = offer.parts(given.calls) if refusal is None else [Refused(call, refusal) for call in calls]
    step = await offer.tool.begin(calls, parts)
    offer.programs.answered(given.items, response.id)
    return Turn(response, offer, step, parts, given)


async def restored(response: Response, offer: Offer, step: Item, context: Any) -> Turn:
    """A paused turn from what `Step.dump` gave, in this or another process."""
    given = _Given(response, offer)
    offer.programs.saw(given.items)
    offer.programs.answered(given.items, response.id)
    loaded = await Step.load(offer.tool.executor, step, context)
    offer.tool.runs += loaded.runs
    return Turn(response, offer, loaded, (), given)
