"""Programs that wait for the application: which of their calls it knows of, and what its answers come to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bridge.code_tool import Answered, CodeTool, ModelCall, Step
from bridge.openai import dialect
from bridge.openai.items import with_note
from bridge.openai.transport import Refusal
from bridge.openai.turns import Item

if TYPE_CHECKING:
    from bridge.approval import ApprovalRequest
    from bridge.executor import Executor
    from bridge.results import PendingCall
    from bridge.tools import Tool

_OUTPUT: Final = "_call_output"  # how the types of outputs end
_VERDICT: Final = "mcp_approval_response"


@dataclass(frozen=True)
class RequestTools:
    """What the tools of a request come to: an executor that has them besides its own; they by full name; as given."""

    executor: Executor
    tools: dict[str, Tool]
    given: Sequence[Item]


@dataclass
class Waiting:
    """The programs of one response of the model, and what is needed to go on when they have ended.

    Attributes:
        response: Of the model.
        types: `call_id` of each program -> type of the model's call.
        beside: Calls of the model itself that the application has not answered yet.
        listed: Ids on the wire that the application was told of.
        ready: What goes to the model besides: answers to the model's own calls.
        again: Id of a call of the model -> how many others had it, and were left out.
        told: Whether the application has the programs' outputs.
    """

    step: Step
    code: CodeTool
    offer: RequestTools
    response: Item
    types: dict[str, str]
    beside: set[str]
    listed: set[str] = field(default_factory=set[str])
    ready: list[Item] = field(default_factory=list[Item])
    again: dict[str, int] = field(default_factory=dict[str, int])
    told: bool = False

    @property
    def ended(self) -> bool:
        """Whether it is the model's turn."""
        return self.step.status == "finished" and not self.beside

    def _open(self) -> dict[str, PendingCall | ApprovalRequest]:
        """What waits, by its id on the wire, in call order."""
        asked = {f"mcpr_{dialect.call_id(request)}": request for request in self.step.approvals}
        return {**{dialect.call_id(call): call for call in self.step.pending}, **asked}

    @property
    def open_ids(self) -> set[str]:
        """Ids on the wire of all that waits."""
        return set(self._open())

    def news(self) -> Iterator[Item]:
        """Items for the application: calls that it does not know of; where there are none, all that wait once more."""
        if self.step.status == "finished":
            if not self.told:
                self.told = True
                yield from map(self._ended, self.step.answers)
            return
        waits, programs = self._open(), self.step.programs
        fresh = waits.keys() - self.listed
        self.listed |= fresh
        for identity, call in waits.items():
            if fresh and identity not in fresh:
                continue
            if dialect.is_request(call):
                yield dialect.approval_item(call, programs[call.run_id])
            else:
                yield dialect.call_item(call, programs[call.run_id], self.offer.tools)

    def _ended(self, answered: Answered) -> Item:
        if answered.name == self.code.name:
            return self._output(answered)
        [call] = [item for item in self.response["output"] if item.get("call_id") == answered.id]
        found = () if answered.failed or self.code.search is None else self.code.search.find(model_call(call)).entries
        return dialect.search_output(call, [dialect.definition_of(entry, self.offer.given) for entry in found])

    def _output(self, answered: Answered) -> Item:
        made = dialect.program_output(answered)
        return made | {"result": with_note(made["result"], self.again.get(answered.id, 0))}

    def outputs(self) -> list[Item]:
        """What goes to the model, once all have ended."""
        made: list[Item] = []
        for each in self.step.answers:
            text = self._output(each)["result"] if each.name == self.code.name else each.text
            made.append(dialect.plain_output(each.id, text, self.types[each.id]))
        return [*made, *self.ready]

    async def take(self, items: Sequence[Item], *, whole: bool) -> list[Item]:
        """Give the application's answers to the programs; what else it says to the model is given back.

        Args:
            whole: The items are the whole history, in which most outputs are old.

        Raises:
            Refusal: An output that answers nothing, or not this; nothing was applied.
        """
        waits, programs = self._open(), self.step.programs
        answers: dict[str, Any] = {}
        beside: list[Item] = []
        said: list[Item] = []
        seen: set[str] = set()
        for item in items:
            kind = str(item.get("type", "message"))
            if kind != _VERDICT and not kind.endswith(_OUTPUT) and not _is_loaded(item):
                said.append(item)
                continue
            identity = str(item.get("call_id") or item.get("approval_request_id"))
            if identity in seen:
                raise Refusal(f"Duplicate tool output for call_id {identity}.")
            seen.add(identity)
            call = waits.get(identity)
            if call is not None:
                # A missing caller is no harm, for the call is known; another one is a mistake.
                if item.get("caller") and dialect.made_by(item) != programs[call.run_id]:
                    raise Refusal(f"The caller of call {identity} was not echoed: {item['caller']}.")
                answers[call.id] = self._answer(item, call, identity)
            elif identity in self.beside:
                own = {name: part for name, part in item.items() if name != "caller"}
                beside += dialect.plain_items([own], {})
            elif not whole and identity not in self.listed:
                raise Refusal(f"No tool call found for {kind.replace('_', ' ')} with call_id {identity}.")
        if answers:
            await self.step.resume(answers)
        self.ready += beside
        self.listed |= self.beside & seen  # given again with a request that is sent again, they are nothing new
        self.beside -= {str(item.get("call_id") or item.get("approval_request_id")) for item in beside}
        return said

    def _answer(self, item: Item, call: PendingCall | ApprovalRequest, identity: str) -> Any:
        if dialect.is_request(call) != (item["type"] == _VERDICT):
            raise Refusal(f"A {item['type'].replace('_', ' ')} does not answer {identity}.")
        if dialect.is_request(call):
            return dialect.verdict_of(item)
        tool = self.offer.tools.get(call.tool)
        return dialect.answer_of(item, declared=tool is not None and tool.output_schema is not None)


def model_call(item: Item) -> ModelCall:
    """A function call of the model."""
    return ModelCall(id=item["call_id"], name=item["name"], arguments=item["arguments"])


def _is_loaded(item: Item) -> bool:
    """Whether it is what the application found for a search of the model's own."""
    return item.get("type") == "tool_search_output" and item.get("execution") == "client"
