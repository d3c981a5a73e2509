"""One turn of an agent loop and what ends the loop: calls of a model answered together, pauses, bounds.

No vendor's wire is known here. `Step` owns the answers to one response, and a pause among them; `Bounds` ends a loop
that goes nowhere. How a call is judged is the gate's.

    BridgeError
    └── LoopError            the loop ended without a final message; `reply` is where it stood, a sound transcript
        ├── TurnsExceeded    the model still called tools after as many requests as `turns` allows
        └── RepeatedFailure  the same failure came back `SAME_FAILURES` times
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from bridge import direct, replies
from bridge.errors import BridgeError, ConfigurationError, StateError, ToolError
from bridge.text import visible

if TYPE_CHECKING:
    from bridge.approval import ApprovalRequest
    from bridge.executor import Executor
    from bridge.results import PendingCall, Result
    from bridge.run import Run
    from bridge.tools import Caller
    from sandbox import Limits

TURNS: Final = 25  # requests of one loop; a long task takes about ten when it is done with programs
_LABELS: Final = {False: "[sandbridge] error ", True: "Error: "}  # for a model, for a program
SAME_FAILURES: Final = 3  # the same failure so many times: the model does not find a way out of it


class LoopError(BridgeError):
    """A loop that ended without a final message. `reply` is where it stood: transcript, runs, last response."""

    def __init__(self, message: str, reply: Any = None) -> None:
        super().__init__(message)
        self.reply = reply


class TurnsExceeded(LoopError):
    """The bound on requests was reached while the model still called tools; those last calls were not made."""


class RepeatedFailure(LoopError):
    """The model failed the same way again and again; the text says what it tried."""


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


class Refused(Part):
    """A call that reaches nobody, and why. `whole`: as for `Direct`."""

    def __init__(self, call: ModelCall, error: ToolError, *, whole: bool = False) -> None:
        text = f"{_LABELS[whole]}{error}"
        self._answered = Answered(id=call.id, name=call.name, text=text, failed=True)

    def answers(self) -> list[Answered]:
        return [self._answered]


class Program(Part):
    """A call of the code tool. `options` are those of `Executor.start`."""

    def __init__(self, call: ModelCall, program: str, options: Mapping[str, Any]) -> None:
        self.call = call
        self._program = program
        self._options = options

    async def start(self, executor: Executor) -> None:
        self.run = await executor.start(self._program, **self._options)

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

    def answers(self) -> list[Answered]:
        assert self._direct is not None
        found: list[Answered] = []
        for call, result in zip(self._calls, self._direct.results(), strict=True):
            text = result.body if result.status == "completed" else result.text
            if self._whole:
                text = result.value if isinstance(result.value, str) else replies.encode(result.value).decode()
            if result.error is not None:
                text = f"{_LABELS[self._whole]}{result.error.code}: {result.error.message}"
                text += f" ({result.error.hint})" if result.error.hint else ""
            found.append(
                Answered(id=call.id, name=call.name, text=text, failed=result.error is not None, result=result)
            )
        return found


async def begin(executor: Executor, calls: Sequence[ModelCall], parts: Sequence[Part]) -> Step:
    """Start all parts of a step together; returns when each is finished or paused.

    Raises:
        SandboxError: V8 or the walls are not there: an operator's fault.
    """
    await together([partial(part.start, executor) for part in parts])
    return Step(calls, parts)


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

    async def cancel(self) -> Step:
        """Give up what waits: its calls are answered with `cancelled`, so that the transcript stays sound."""
        for run in self.runs:
            if run.status != "finished":
                await run.cancel()
        return self


class Bounds:
    """What ends a loop that goes nowhere: a number of requests, and the same failure again and again."""

    def __init__(self, turns: int = TURNS) -> None:
        if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"turns must be a whole number from 1 on, not {turns!r}")
        self.turns = turns
        self.used = 0
        self._failed: list[tuple[str, str]] = []  # how and with what, since the last success

    @property
    def spent(self) -> bool:
        """Whether no further request may be sent."""
        return self.used >= self.turns

    def turn(self) -> None:
        """Count one request."""
        self.used += 1

    def exceeded(self, reply: Any) -> TurnsExceeded:
        """The error for a model that still calls tools."""
        return TurnsExceeded(f"the model still called tools after {self.turns} requests (turns={self.turns})", reply)

    def saw(self, answers: Iterable[Answered], reply: Any) -> None:
        """Take in the answers of one step. What failed alike within one counts once; any success is progress.

        Raises:
            RepeatedFailure: The same failure came back in `SAME_FAILURES` steps with no success in between.
        """
        given = list(answers)
        if not given or not all(answered.failed for answered in given):
            self._failed.clear()
            return
        self._failed += {_likeness(answered): answered.text for answered in given}.items()
        for likeness, _ in self._failed[-len(given) :]:
            alike = [text for other, text in self._failed if other == likeness]
            if len(alike) >= SAME_FAILURES:
                tried = "\n".join(f"{number}. {text[:600]}" for number, text in enumerate(alike, 1))
                raise RepeatedFailure(f"the model failed {len(alike)} times in the same way:\n{tried}", reply)


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


def _likeness(answered: Answered) -> str:
    """What two failures have in common when they are the same: code and message, without numbers and ids."""
    error = answered.result.error if answered.result is not None else None
    text = answered.text if error is None else f"{error.code} {error.name} {error.message}"
    return re.sub(r"[0-9]+", "#", text[:600])


def read_arguments(call: ModelCall) -> Any:
    """The arguments of a call as a JSON value. Raises `ToolError` (`invalid_arguments`) where their text is no JSON."""
    if not isinstance(call.arguments, str):
        return {} if call.arguments is None else call.arguments
    if not call.arguments.strip():
        return {}
    try:
        return json.loads(call.arguments, strict=False)  # line ends within strings: models write them
    except (ValueError, RecursionError) as error:
        where = (
            f"line {error.lineno}, column {error.colno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        )
        text = f"the arguments of {visible(call.name)[:80]} are no JSON ({where or 'nested too deeply'})"
        raise ToolError("invalid_arguments", f"{text}; send them again, complete, as one JSON object") from None
