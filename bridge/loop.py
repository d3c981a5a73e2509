"""One turn of an agent loop: the calls of a model, answered together, and what they wait for.

No vendor's wire is known here. `Step` owns the answers to one response, and a pause among them, also across processes.
How a call is judged is the gate's; when a loop has gone on for long enough, bounds.py's.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from bridge import direct, replies
from bridge.errors import StateError, ToolError
from bridge.render import guard
from bridge.text import visible

if TYPE_CHECKING:
    from bridge.approval import ApprovalRequest
    from bridge.executor import Executor
    from bridge.results import PendingCall, Result
    from bridge.run import Run
    from bridge.tools import Caller
    from sandbox import Limits

_ID_KEPT: Final = 56  # characters of an id in one made of it; the vendors take 64
_LABELS: Final = {False: "[sandbridge] error ", True: "Error: "}  # for a model, for a program


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One tool call as a model made it.

    Attributes:
        id: The vendor's; what comes back has the same.
        arguments: A JSON value, or the JSON text of one (`str`), as the vendor gives it.
        program: The program itself, where the endpoint has tools that take raw text; `arguments` is not looked at.
    """

    id: str
    name: str
    arguments: Any = None
    program: str | None = None


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What goes back to the model under the call's id.

    Attributes:
        text: For the model; at most `Limits.output_bytes`.
        failed: Whether the text tells of a failure.
        result: Of the program or of the direct call; None where nothing could be started.
    """

    id: str
    name: str
    text: str
    failed: bool
    result: Result | None = None


class Part:
    """Something that answers some calls of a response. One of three: a program, direct calls, a refusal."""

    run: Run | None = None

    async def start(self, executor: Executor) -> None:
        """Set it going; returns when it is finished or paused."""

    def answers(self) -> list[Answered]:
        """An answer for each of its calls, once it is finished."""
        raise NotImplementedError

    def dump(self) -> dict[str, Any]:
        """Itself as JSON data, for `load_part`. Raises `StateError` where its run cannot be dumped."""
        return {
            "kind": "ended",
            "answers": [[each.id, each.name, each.text, each.failed] for each in self.answers()],
        }


class Refused(Part):
    """A call that reaches nobody, and why. `whole`: as for `Direct`."""

    def __init__(self, call: ModelCall, error: ToolError, *, whole: bool = False) -> None:
        text = f"{_LABELS[whole]}{error}"
        self._answered = Answered(id=call.id, name=call.name, text=text, failed=True)

    def answers(self) -> list[Answered]:
        return [self._answered]


class Ended(Part):
    """Calls that were answered before the step was put away; their results stayed behind."""

    def __init__(self, answers: Sequence[Answered]) -> None:
        self._answers = list(answers)

    def answers(self) -> list[Answered]:
        return self._answers


class Program(Part):
    """A call of the code tool. `options` are those of `Executor.start`."""

    def __init__(self, call: ModelCall, program: str, options: Mapping[str, Any]) -> None:
        self.call = call
        self._program = program
        self._options = options

    async def start(self, executor: Executor) -> None:
        self.run = await executor.start(self._program, **self._options)

    def dump(self) -> dict[str, Any]:
        if self.run is None or self.run.status == "finished":
            return super().dump()
        return {"kind": "program", "id": self.call.id, "name": self.call.name, "state": self.run.dump()}

    def answers(self) -> list[Answered]:
        assert self.run is not None
        assert self.run.result is not None
        result = self.run.result
        failed = result.status != "completed"
        return [Answered(id=self.call.id, name=self.call.name, text=result.text, failed=failed, result=result)]


class Direct(Part):
    """Calls of tools themselves, made together: the model's own, or those of a program that the vendor runs.

    Args:
        made: Tool (exact name) and arguments for each of `calls`. The rest is as for `direct.start`.
        whole: A program reads the answers, not a model: values in full, failures as `Error: code: message`.
    """

    def __init__(
        self,
        calls: Sequence[ModelCall],
        made: Sequence[direct.ToolCall],
        *,
        caller: Caller = "direct",
        program: str = "",
        limits: Limits | None = None,
        context: Any = None,
        whole: bool = False,
    ) -> None:
        self._whole = whole
        self._calls = calls
        self._made = made
        self._options: dict[str, Any] = {"caller": caller, "program": program, "limits": limits, "context": context}
        self._direct: direct.DirectRun | None = None

    async def start(self, executor: Executor) -> None:
        self._direct = await direct.start(executor, self._made, **self._options)
        self.run = self._direct.run

    def dump(self) -> dict[str, Any]:
        if self._direct is None or self.run is None or self.run.status == "finished":
            return super().dump()
        calls = [[call.id, call.name] for call in self._calls]
        return {"kind": "direct", "calls": calls, "whole": self._whole, "made": self._direct.dump()}

    async def load(self, executor: Executor, made: Mapping[str, Any]) -> None:
        """Take up what `dump` put away."""
        self._direct = await direct.load(executor, made, self._options["context"])
        self.run = self._direct.run

    def answers(self) -> list[Answered]:
        assert self._direct is not None
        found: list[Answered] = []
        for call, result in zip(self._calls, self._direct.results(), strict=True):
            text = result.body if result.status == "completed" else result.text
            if self._whole:
                text = result.value if isinstance(result.value, str) else replies.encode(result.value).decode()
            if result.error is not None:
                said = result.error.message if self._whole else guard(result.error.message)
                text = f"{_LABELS[self._whole]}{result.error.code}: {said}"
                text += f" ({result.error.hint})" if result.error.hint else ""
            found.append(
                Answered(id=call.id, name=call.name, text=text, failed=result.error is not None, result=result)
            )
        return found


async def begin(executor: Executor, calls: Sequence[ModelCall], parts: Sequence[Part]) -> Step:
    """Start all parts of a step together; returns when each is finished or paused.

    Where one cannot be started, or the caller is cancelled, nothing is left of the others.

    Raises:
        SandboxError: V8 or the walls are not there: an operator's fault.
    """
    step = Step(calls, parts)
    async with given_up_on_error([step]):
        await together([partial(part.start, executor) for part in parts])
    return step


@asynccontextmanager
async def given_up_on_error(steps: Sequence[Step]) -> AsyncGenerator[None]:
    """Cancel steps whose runs nobody can reach any more when the block does not end by itself; it may add some."""
    try:
        yield
    except BaseException:
        with anyio.CancelScope(shield=True):
            for step in steps:
                await step.cancel()
        raise


async def load_part(executor: Executor, data: Mapping[str, Any], context: Any = None) -> Part:
    """A part from what `Part.dump` gave. Raises `StateError`, as `Executor.load`."""
    match data["kind"]:
        case "program":
            program = Program(ModelCall(id=data["id"], name=data["name"]), "", {})
            program.run = await executor.load(data["state"], context=context)
            return program
        case "direct":
            calls = [ModelCall(id=call_id, name=name) for call_id, name in data["calls"]]
            part = Direct(calls, (), context=context, whole=data["whole"])
            await part.load(executor, data["made"])
            return part
        case _:
            rows = data["answers"]
            return Ended([Answered(id=i, name=name, text=text, failed=failed) for i, name, text, failed in rows])


class Step:
    """The answers to one response of a model. While `paused`, something in it waits for people or the application.

    Attributes:
        status: `paused` or `finished`.
        runs: The runs of this step: a program's each, and one of all direct calls.
        pending, approvals: Of all its runs, in order; call ids are unique over runs.
    """

    def __init__(self, calls: Sequence[ModelCall], parts: Sequence[Part]) -> None:
        self._calls = calls
        self._parts = parts

    @property
    def runs(self) -> list[Run]:
        return [part.run for part in self._parts if part.run is not None]

    @property
    def programs(self) -> dict[str, str]:
        """The id of each run of a program, and that of the model's call that gave the program."""
        made = [part for part in self._parts if isinstance(part, Program)]
        return {part.run.id: part.call.id for part in made if part.run is not None}

    @property
    def status(self) -> Literal["paused", "finished"]:
        return "paused" if any(run.status != "finished" for run in self.runs) else "finished"

    @property
    def pending(self) -> list[PendingCall]:
        return [call for run in self.runs if run.status == "paused" for call in run.pending]

    @property
    def approvals(self) -> list[ApprovalRequest]:
        return [request for run in self.runs if run.status == "paused" for request in run.approvals]

    @property
    def ended(self) -> list[Answered]:
        """The answers of what has ended, while the rest may still wait; in no order of the calls."""
        over = [part for part in self._parts if part.run is None or part.run.status == "finished"]
        return [answered for part in over for answered in part.answers()]

    @property
    def answers(self) -> list[Answered]:
        """One for every call of the response, in its order. Raises `StateError` while the step is paused."""
        if self.status == "paused":
            raise StateError("the step is paused: resume it with verdicts and answers, or cancel it")
        by_id = {answered.id: answered for part in self._parts for answered in part.answers()}
        return [by_id[call.id] for call in self._calls]

    async def resume(self, answers: Mapping[str, Any]) -> Step:
        """Give verdicts and answers by call id, as `Run.resume` takes them, to whichever run each call belongs to.

        The answers to one run are applied together or not at all.

        Raises:
            StateError: Nothing waits, an id does not, or a verdict does not fit.
        """
        if not isinstance(answers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  from outside
            raise StateError(f"answers are a mapping from call id to verdict, not a {type(answers).__name__}")
        moving = [run for run in self.runs if run.status == "running"]  # a call of theirs has expired meanwhile
        await together([run.settled for run in moving])
        paused = [run for run in self.runs if run.status == "paused"]
        if not paused and (answers or not moving):
            raise StateError("nothing of this step waits: only a paused step can be resumed")
        given: dict[str, dict[str, Any]] = {run.id: {} for run in paused}
        for call_id, answer in answers.items():
            owner = next((run.id for run in paused if any(each.id == call_id for each in waiting(run))), None)
            if owner is None:
                waits = ", ".join(each.id for run in paused for each in waiting(run)) or "none"
                raise StateError(f"call {call_id} does not wait in this step; waiting: {waits}")
            given[owner][call_id] = answer
        await together([partial(run.resume, given[run.id]) for run in paused if given[run.id]])
        return self

    def dump(self) -> dict[str, Any]:
        """The paused step as JSON data for `Step.load`; its runs go on elsewhere from then on.

        Raises:
            StateError: A run of it cannot be dumped: there is neither a store nor a key.
        """
        return {"calls": [[call.id, call.name] for call in self._calls], "parts": [part.dump() for part in self._parts]}

    @classmethod
    async def load(cls, executor: Executor, data: Mapping[str, Any], context: Any = None) -> Step:
        """A step from what `dump` gave, in this or another process.

        Raises:
            StateError: Of a run, as `Executor.load` says.
        """
        calls = [ModelCall(id=call_id, name=name) for call_id, name in data["calls"]]
        return cls(calls, [await load_part(executor, part, context) for part in data["parts"]])

    async def cancel(self) -> Step:
        """Give up what waits: its calls are answered with `cancelled`, so that the transcript stays sound."""
        for run in self.runs:
            if run.status != "finished":
                await run.cancel()
        return self


def waiting(run: Run) -> list[PendingCall | ApprovalRequest]:
    """What a paused run waits for."""
    return [*run.pending, *run.approvals]


async def together(functions: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    """Call all of them at once; the first error of any is raised as it is, in no group, when all have ended."""
    errors: list[Exception] = []

    async def one(function: Callable[[], Awaitable[Any]]) -> None:
        try:
            await function()
        except Exception as error:  # noqa: BLE001  raised below
            errors.append(error)

    if len(functions) == 1:
        await functions[0]()
        return
    async with anyio.create_task_group() as tasks:
        for function in functions:
            tasks.start_soon(one, function)
    if errors:
        raise errors[0]


def told_apart(ids: Iterable[Any], taken: Iterable[str] = ()) -> list[str]:
    """The ids of one response's calls, with a new one for each that is missing or was there before.

    Answers are paired by them. The same ids give the same, also in another process. `taken` are those of earlier calls.
    """
    given = [each if isinstance(each, str) else "" for each in ids]
    seen = {"", *taken}
    known = {*given, *seen}
    made: list[str] = []
    for identity in given:
        own, number = identity, 2
        while own in seen or (own != identity and own in known):
            own, number = f"{identity[:_ID_KEPT] or 'call'}_{number}", number + 1
        seen.add(own)
        made.append(own)
    return made


def read_arguments(call: ModelCall) -> Any:
    """The arguments of a call as a JSON value. Raises `ToolError` (`invalid_arguments`) where their text is no JSON."""
    if not isinstance(call.arguments, str):
        return {} if call.arguments is None else call.arguments
    if not call.arguments.strip():
        return {}
    try:
        return json.loads(call.arguments, strict=False)  # line ends within strings: models write them
    except (ValueError, RecursionError) as error:
        where = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        if isinstance(error, json.JSONDecodeError):
            where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        text = f"the arguments of {visible(call.name)[:80]} are no JSON ({where})"
        raise ToolError("invalid_arguments", f"{text}; send them again, complete, as one JSON object") from None
