"""The code tool of an agent loop: what a model is offered, and how its calls become programs and direct calls.

No vendor's wire is known here. A provider turns a response into `ModelCall`s, gives them to `CodeTool.answer`, and
sends what comes back under the same ids. Answers and pauses are in loop.py, tools beside it in offers.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from bridge import searching
from bridge.bounds import TURNS, Bounds, LoopError, RepeatedFailure, TurnsExceeded
from bridge.declarations import instructions, within
from bridge.direct import ToolCall
from bridge.errors import ConfigurationError, ToolError
from bridge.loop import Answered, Direct, ModelCall, Part, Program, Refused, Step, begin, read_arguments
from bridge.offers import NAME_LENGTH, DirectTool, chosen, offered, vendor_names
from bridge.text import shown, visible

if TYPE_CHECKING:
    from bridge.executor import Executor
    from bridge.run import Run
    from sandbox import Limits

__all__ = [
    "SCHEMA",
    "SHORT",
    "TOOL_NAME",
    "TURNS",
    "Answered",
    "Bounds",
    "CodeTool",
    "DirectTool",
    "LoopError",
    "ModelCall",
    "RepeatedFailure",
    "Step",
    "TurnsExceeded",
    "read_arguments",
    "vendor_names",
]

TOOL_NAME: Final = "run_program"
SHORT: Final = "Runs one JavaScript program that calls tools, and gives back what it returns or prints."
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"program": {"type": "string", "description": "The whole program, as plain JavaScript text."}},
    "required": ["program"],
    "additionalProperties": False,
}
_OTHER_NAMES: Final = ("code", "javascript", "script", "source", "js")  # what models call the property instead


class CodeTool:
    """The code tool of one conversation, and the tools beside it. What it offers stays the same for its whole life.

    Args:
        executor: Open; runs the programs and judges every call.
        direct: True: every tool whose `callers` include `direct` is offered beside the code tool; or the names and
            patterns (`github.*`) of those that are.
        budget: Tokens of declarations that the model reads at once (`declarations.within`); what does not fit, and
            what is deferred, it finds with `search_tools`. None: all that is not deferred.
        name: Of the code tool.
        inputs, limits, context: Of every program, as for `Executor.start`.

    Attributes:
        schema: JSON Schema of the arguments; `program` is the first property.
        search: The search tool, to be offered after the code tool; None where the model reads every declaration.
        instructions: How to write a program, and the declarations. `description` is a short text (`SHORT`) followed by
            them, for vendors that take long descriptions.
        direct: The tools beside it, in catalog order.
        runs: Every run so far, in the order in which they were started.

    Raises:
        ConfigurationError: `direct` names a tool that is not there or that only programs may call.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        direct: bool | Iterable[str] = False,
        budget: int | None = None,
        name: str = TOOL_NAME,
        inputs: Any = None,
        limits: Limits | None = None,
        context: Any = None,
    ) -> None:
        if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{NAME_LENGTH}}}", name):
            raise ConfigurationError(f"the code tool cannot be named {name!r}: 1 to 64 letters, digits, _ and -")
        if name == searching.NAME:
            raise ConfigurationError(f"the code tool cannot be named {name!r}: that is the tool that finds others")
        if budget is not None and (isinstance(budget, bool) or budget < 0):
            raise ConfigurationError(f"budget is a number of tokens from 0 on, not {budget!r}")
        catalog = executor.catalog
        programmatic = [entry for entry in catalog.entries if "programmatic" in entry.tool.callers]
        declared = [entry for entry in programmatic if not entry.tool.defer]
        if budget is not None:
            declared = within(programmatic, budget)
        self.executor = executor
        self.name = name
        self.schema = SCHEMA
        self.search = searching.Search(catalog) if len(declared) < len(programmatic) else None
        search = searching.NAME if self.search is not None else None
        self.instructions = instructions(catalog, budget=budget, search=search)
        self.description = f"{SHORT}\n\n{self.instructions}"
        self.direct = offered(chosen(catalog, direct), taken={name, *([search] if search else [])})
        self.runs: list[Run] = []
        self._by_name = {tool.name: tool for tool in self.direct}
        self._of_programs: dict[str, Any] = {"inputs": inputs, "limits": limits, "context": context}
        self._of_calls: dict[str, Any] = {"limits": limits, "context": context}

    def program_of(self, call: ModelCall) -> str:
        """The program in a call of the code tool.

        Raises:
            ToolError: `invalid_arguments`; the text tells the model what to send instead.
        """
        if call.program is not None:
            return call.program
        given = read_arguments(call)
        if isinstance(given, str):
            return given
        if isinstance(given, dict):
            properties = cast("dict[str, Any]", given)
            for key in ("program", *_OTHER_NAMES):
                if isinstance(properties.get(key), str):
                    return properties[key]
            lines = properties.get("program")
            if isinstance(lines, list) and all(isinstance(line, str) for line in cast("list[Any]", lines)):
                return "\n".join(cast("list[str]", lines))  # some models send long text so
        text = f'{self.name} takes {{"program": "<JavaScript text>"}}, not {shown(given, 80)}: send the whole program'
        raise ToolError("invalid_arguments", text)

    def answers_to(self, name: str) -> bool:
        """Whether a call by this name is the executor's to answer, be it that only programs may call such a tool."""
        if name == self.name or name in self._by_name:
            return True
        if self.search is not None and name == searching.NAME:
            return True
        return self._is_in_catalog(name)

    def _is_in_catalog(self, name: str) -> bool:
        return any(name in (entry.name, entry.expression) for entry in self.executor.catalog.entries)

    async def answer(self, calls: Sequence[ModelCall]) -> Step:
        """Answer all tool calls of one response, together; returns when all are, or when the rest waits for people.

        A failure of a program or a call is an answer, never an exception.

        Raises:
            SandboxError: V8 or the walls are not there: an operator's fault.
        """
        return await self.begin(calls, self.parts(calls))

    def parts(self, calls: Sequence[ModelCall]) -> list[Part]:
        """What is to be started for the calls of one response; those that cannot be are refused in words."""
        parts: list[Part] = []
        beside: list[tuple[ModelCall, ToolCall]] = []
        for call in calls:
            try:
                if call.name == self.name:
                    parts.append(Program(call, self.program_of(call), self._of_programs))
                elif self.search is not None and call.name == searching.NAME:
                    parts.append(self.search.part(call))
                else:
                    beside.append((call, self._direct_call(call)))
            except ToolError as error:
                parts.append(Refused(call, error))
        if beside:
            parts.append(Direct([call for call, _ in beside], [made for _, made in beside], **self._of_calls))
        return parts

    async def begin(self, calls: Sequence[ModelCall], parts: Sequence[Part]) -> Step:
        """Start what a provider has made of the calls by itself, and keep its runs."""
        step = await begin(self.executor, calls, parts)
        self.runs += step.runs
        return step

    def _direct_call(self, call: ModelCall) -> ToolCall:
        tool = self._by_name.get(call.name)
        if tool is None:
            search = [] if self.search is None else [searching.NAME]
            names = ", ".join([self.name, *search, *list(self._by_name)[:20]])
            name = visible(call.name)[:80]
            if self._is_in_catalog(call.name):
                text = (
                    f"{name} is not to be called by itself: write a program that calls it, and give it to {self.name}"
                )
                raise ToolError("denied", text)
            raise ToolError("unknown_tool", f"there is no tool {name!r} to call by itself; there is: {names}")
        return ToolCall(tool.entry.name, tool.arguments(read_arguments(call)))
