"""What a model of the Anthropic API is offered in one conversation, and the answers to one of its responses.

`Offer.handle` is the single step for those who have a loop of their own; conversation.py is the loop. Which calls are
let through is the gate's to say; here only this: a call that names a program as its caller needs that program to run at
the moment, since a forged `caller` must not reach what programs alone may call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from bridge.anthropic import wire
from bridge.anthropic.pictures import with_pictures
from bridge.anthropic.schemas import declared, search_tool
from bridge.code_tool import TOOL_NAME, CodeTool
from bridge.direct import ToolCall
from bridge.errors import StateError, ToolError
from bridge.loop import Answered, Direct, ModelCall, Part, Refused, Step, read_arguments
from bridge.offers import DirectTool, chosen, offered
from bridge.searching import NAME, Search

if TYPE_CHECKING:
    from bridge.approval import ApprovalRequest
    from bridge.executor import Executor
    from bridge.results import PendingCall, Result
    from bridge.run import Run
    from sandbox import Limits

HOSTED_CALL_S: Final = 255.0  # the vendor raises TimeoutError in its program after 270 s; our answer has to travel


class Offer:
    """The tools of one conversation and what it takes to answer their calls. Stays the same for its whole life.

    Args:
        executor: Open.
        direct: Tools that the model may call by itself: True for all whose `callers` include `direct`, or names and
            patterns.
        hosted: Programs are the vendor's (code execution, Python in its container) in place of ours: its programs call
            the executor's tools, through the gate. Deferred ones are declared as such, and the model finds them.
        vendor_searches: The request has a tool search of the vendor's own, so none is offered here.
        budget: As for `CodeTool`; where programs are the vendor's, it is told of all that is not deferred.
        name: Of the code tool.
        inputs, limits, context: As for `Executor.start`.
        messages: The conversation so far, when it is taken up in the middle.

    Attributes:
        tools: For the request, the same with every one.
        runs: All runs so far: of programs, and of calls that the model or the vendor's program made.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        direct: bool | Iterable[str] = False,
        hosted: bool = False,
        vendor_searches: bool = False,
        budget: int | None = None,
        name: str = TOOL_NAME,
        inputs: Any = None,
        limits: Limits | None = None,
        context: Any = None,
        messages: Iterable[Any] = (),
    ) -> None:
        self.executor = executor
        self.hosted = hosted
        self.programs = wire.Programs(messages)
        self._limits = limits
        self._context = context
        self._by_program: dict[str, DirectTool] = {}
        self._names: dict[str, str] = {}  # exact name -> the vendor's
        self._search: Search | None = None  # where the vendor loads what is found
        if hosted:
            self._code = CodeTool(executor, direct=False, limits=limits, context=context)
            self.tools = self._hosted(direct, search=not vendor_searches)
        else:
            self._code = CodeTool(
                executor, direct=direct, budget=budget, name=name, inputs=inputs, limits=limits, context=context
            )
            self.tools = [*own_tools(self._code), *(declared(tool) for tool in self._code.direct)]

    @property
    def runs(self) -> list[Run]:
        return self._code.runs

    async def handle(self, response: Any) -> Turn:
        """Answer a response: a `Message` of the SDK, or one as plain data. The single step, for a loop of your own.

        Returns:
            The turn: what to append (`messages`). While it is `paused`, something in it waits for people or the
            application. Calls of tools that are not the executor's are the application's, and are `left`; those of a
            response that was cut off are nobody's, and are answered here.

        Raises:
            SandboxError: V8 or the walls are not there: an operator's fault.
        """
        return await self.answer(response, leave=True)

    async def answer(self, response: Any, *, leave: bool = False, refusal: ToolError | None = None) -> Turn:
        """Answer a response, or refuse every call in it; returns when all is answered, or when the rest waits.

        Args:
            leave: Calls of tools that are not the executor's are the application's; else the model is told that there
                is no such tool.
        """
        response_id = str(wire.field(response, "id") or "")
        content = self.programs.apart(wire.content_of(response), response_id)
        stop = wire.Stop("tool_use" if refusal else wire.field(response, "stop_reason") or "")
        self.programs.see(content)
        calls = list({call["id"]: call for call in reversed(wire.calls_in(content))}.values())[::-1]
        if refusal is None and (stop.cut or stop.refused):
            refusal = _not_made(stop)
        left = [call for call in calls if leave and refusal is None and not self.answers_to(call["name"])]
        calls = [call for call in calls if call not in left]
        made = [wire.model_call(call) for call in calls]
        parts = self._parts(calls) if refusal is None else [Refused(call, refusal) for call in made]
        step = await self._code.begin(made, parts) if calls else None
        self.programs.answered(content, response_id)
        return Turn(content, stop, step, self, left)

    def answers_to(self, name: str) -> bool:
        """Whether a call by this name is the executor's to answer, rather than the application's."""
        if self._search is not None and name == NAME:
            return True
        return name in self._by_program if self.hosted else self._code.answers_to(name)

    async def restore(self, content: list[wire.Block], stop: str, step: Any, context: Any = None) -> Turn:
        """A paused turn from the parts that were put away. Raises `StateError`, as `Executor.load`."""
        self.programs.see(content)
        self.programs.answered(content)
        loaded = await Step.load(self.executor, step, context) if step is not None else None
        self.runs.extend(loaded.runs if loaded is not None else ())
        return Turn(content, wire.Stop(stop), loaded, self)

    def result(self, call: wire.Block, answered: Answered) -> wire.Block:
        """The `tool_result` for a call."""
        if wire.caller_of(call).program is not None:
            return wire.result(answered, flagged=False)
        if self._search is not None and call["name"] == NAME and not answered.failed:
            entries = self._search.find(wire.model_call(call)).entries  # asked again, it gives the same
            references = [{"type": "tool_reference", "tool_name": self._names[entry.name]} for entry in entries]
            return wire.result(answered) | ({"content": references} if references else {})
        block = wire.result(answered)
        return block if answered.result is None else with_pictures(block, answered.result.images, self.executor.fetch)

    def _hosted(self, direct: bool | Iterable[str], *, search: bool) -> list[dict[str, Any]]:
        catalog = self.executor.catalog
        from_programs = chosen(catalog, True, "programmatic", deferred=True)
        by_itself = chosen(catalog, direct, deferred=True)
        entries = [entry for entry in catalog.entries if entry in from_programs or entry in by_itself]
        deferred = [entry for entry in entries if entry.tool.defer]
        tools: list[dict[str, Any]] = [{"type": wire.HOSTED, "name": wire.CODE_EXECUTION}]
        if deferred and search:
            self._search = Search(catalog, deferred)
            tools.append(search_tool(self._search))
        for tool in offered(entries, {tool["name"] for tool in tools}, hyphens=False):
            callers = [wire.HOSTED] if tool.entry in from_programs else []
            callers += ["direct"] if tool.entry in by_itself else []
            made = declared(tool, callers=callers, returns=wire.HOSTED in callers)
            tools.append(made | ({"defer_loading": True} if tool.entry in deferred else {}))
            self._by_program[tool.name] = tool
            self._names[tool.entry.name] = tool.name
        return tools

    def _parts(self, calls: list[wire.Block]) -> list[Part]:
        own: list[ModelCall] = []
        parts: list[Part] = []
        of_programs: dict[str | None, list[tuple[ModelCall, ToolCall]]] = {}
        for block in calls:
            call, parent = wire.model_call(block), wire.caller_of(block).program
            if parent is None and not self.hosted:
                own.append(call)
                continue
            try:
                if parent is not None and parent not in self.programs.live:
                    text = f"the call says that the program {parent!r} made it, and no such program is running"
                    raise ToolError("denied", text)
                if parent is None and self._search is not None and call.name == NAME:
                    parts.append(self._search.part(call))
                    continue
                tool = self._by_program.get(call.name)
                if tool is None:
                    there = ", ".join(list(self._by_program)[:20]) or "none"
                    raise ToolError("unknown_tool", f"there is no tool {call.name[:80]!r}; there is: {there}")
                made = ToolCall(tool.entry.name, tool.arguments(read_arguments(call)))
                of_programs.setdefault(parent, []).append((call, made))
            except ToolError as error:
                parts.append(Refused(call, error, whole=parent in self.programs.live))
        parts += self._code.parts(own)
        for parent, pairs in of_programs.items():
            parts.append(
                Direct(
                    [call for call, _ in pairs],
                    [made for _, made in pairs],
                    caller="direct" if parent is None else "programmatic",
                    program="" if parent is None else self.programs.live[parent],
                    limits=self._limits if parent is None else self._deadline(),
                    context=self._context,
                    whole=parent is not None,
                )
            )
        return parts

    def _deadline(self) -> Limits:
        """The limits of a call whose program waits at the vendor's: whatever takes longer finds it gone."""
        bounds = self._limits or self.executor.limits
        return dataclasses.replace(
            bounds,
            call_s=min(bounds.call_s, HOSTED_CALL_S),
            wall_s=min(bounds.wall_s, HOSTED_CALL_S),
            expires_s=min(bounds.expires_s, HOSTED_CALL_S),
        )


class Turn:
    """One response of the model with the answers to its calls.

    Attributes:
        content: The response's blocks, as they are sent back. A call whose id was there before has a new one.
        left: Calls that the application answers by itself; what it answers goes along in the last of `messages`.
        stop: Why it ended.
        status: `paused` while calls of it wait for people or the application; `finished` otherwise.
        final: Whether the loop ends here: nothing is to be answered or continued.
    """

    def __init__(
        self,
        content: list[wire.Block],
        stop: wire.Stop,
        step: Step | None,
        offer: Offer,
        left: Sequence[wire.Block] = (),
    ) -> None:
        self._offer = offer
        self.content = content
        self.left = list(left)
        self.stop = stop
        self._step = step

    @property
    def final(self) -> bool:
        if self.stop.refused or self.stop.reason == "model_context_window_exceeded":
            return True
        return self._step is None and not self.left and not self.stop.goes_on

    @property
    def status(self) -> Literal["paused", "finished"]:
        return "finished" if self._step is None else self._step.status

    @property
    def step(self) -> Step | None:
        """The answers by call; None where the model called nothing."""
        return self._step

    @property
    def pending(self) -> list[PendingCall]:
        return [] if self._step is None else self._step.pending

    @property
    def approvals(self) -> list[ApprovalRequest]:
        return [] if self._step is None else self._step.approvals

    @property
    def results(self) -> list[Result]:
        """Of the programs and direct calls of this turn. Raises `StateError` while it is paused."""
        answers = [] if self._step is None else self._step.answers
        return [answered.result for answered in answers if answered.result is not None]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What the conversation is to be continued with: the response, and a message with a result for each call.

        Where calls are `left`, their `tool_result` blocks belong into that message too, which may be empty before: take
        over `messages`, and add them to the content of the last.

        Raises:
            StateError: The turn is paused.
        """
        made: list[dict[str, Any]] = []
        if self.content:  # the API takes no empty message
            made.append({"role": "assistant", "content": self.content})
        answers = [] if self._step is None else self._step.answers
        if answers or self.left:
            calls = {call["id"]: call for call in wire.calls_in(self.content)}
            blocks = [self._offer.result(calls[answered.id], answered) for answered in answers]
            made.append({"role": "user", "content": blocks})
        return made

    async def resume(self, answers: Mapping[str, Any]) -> Turn:
        """Give verdicts and answers by call id, as `Run.resume` takes them.

        Raises:
            StateError: Nothing waits, an id does not, or a verdict does not fit.
        """
        if self._step is None:
            raise StateError("nothing of this turn waits: the model called no tool")
        await self._step.resume(answers)
        return self

    async def cancel(self) -> Turn:
        """Give up what waits; its calls are answered with `cancelled`."""
        if self._step is not None:
            await self._step.cancel()
        return self


def own_tools(code: CodeTool) -> list[dict[str, Any]]:
    """The code tool, and the search where there is one."""
    made = {"name": code.name, "description": code.description, "input_schema": dict(code.schema)}
    return [made, *([] if code.search is None else [search_tool(code.search)])]


def _not_made(stop: wire.Stop) -> ToolError:
    if stop.refused:
        return ToolError("cancelled", "not carried out: the response was ended by a refusal")
    text = "not carried out: the response was cut off before its end"
    if stop.reason == "max_tokens":
        return ToolError("limit", f"{text} (max_tokens); send the call again, whole and shorter")
    return ToolError("limit", f"{text}, the context window is full")
