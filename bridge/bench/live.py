"""Live models, and cassettes of them: the same arms, tasks and counting, with a provider's model or a recorded one.

A cassette holds what the model wrote and what it was billed for, and the hash of each request: no key, no header. A
replay sends nothing; where a request is no longer the recorded one it says so (`diverged`).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge.bench import written
from bridge.bench.play import opened
from bridge.bench.tasks import same_calls
from bridge.bench.wire import Body, Kind, Part, compact
from bridge.code_tool import TOOL_NAME
from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from bridge.bench.arms import Arm, Policy
    from bridge.bench.play import Played
    from bridge.bench.tasks import Task
    from bridge.bench.wire import Format
    from sandbox import Sandbox

TURNS: Final = 25  # requests of one turn: a model that still calls tools then does not come to an end


class Answer(msgspec.Struct, frozen=True):
    """What a model wrote to one request: objects as compact JSON with their kinds, and what was billed."""

    sha256: str
    output: list[tuple[Kind, str]]
    usage: dict[str, int] = {}


class Tape(msgspec.Struct, frozen=True):
    """One task in one arm, recorded."""

    task: str
    workload: str
    arm: str
    policy: str
    format: str
    model: str
    seed: int
    answers: list[Answer]
    repetition: int = 0


Respond = Callable[[Body], Awaitable[Answer]]


@dataclass
class Replay:
    """A recorded model."""

    tape: Tape
    diverged: int = 0
    _next: int = field(default=0)

    async def __call__(self, body: Body) -> Answer:
        """The next recorded answer.

        Raises:
            ConfigurationError: The cassette has no more: more is asked now than was then.
        """
        if self._next >= len(self.tape.answers):
            raise ConfigurationError(f"cassette: {self.tape.task} in {self.tape.arm} asks more than was recorded")
        answer = self.tape.answers[self._next]
        self._next += 1
        self.diverged += answer.sha256 != body.sha256
        return answer


def live(format_name: str, model: str, client: Any) -> Respond:
    """A provider's model, by its SDK's asynchronous client."""

    async def responses(body: Body) -> Answer:
        response = await client.responses.create(**_request(body, model))
        data = response.to_dict(mode="json")
        output: list[tuple[Kind, str]] = [(_kind_of_item(item), compact(item)) for item in data["output"]]
        usage: dict[str, Any] = data.get("usage") or {}
        cached = _detail(usage, "input_tokens_details", "cached_tokens")
        reasoning = _detail(usage, "output_tokens_details", "reasoning_tokens")
        return Answer(body.sha256, output, _billed(usage, cached, reasoning))

    async def chat(body: Body) -> Answer:
        completion = (await client.chat.completions.create(**_request(body, model))).to_dict(mode="json")
        message = completion["choices"][0]["message"]
        kept = {name: message[name] for name in ("role", "content", "tool_calls") if message.get(name) is not None}
        usage: dict[str, Any] = completion.get("usage") or {}
        billed: dict[str, Any] = {
            "input_tokens": usage.get("prompt_tokens", 0),
            "output_tokens": usage.get("completion_tokens", 0),
        }
        cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
        names = [call["function"]["name"] for call in message.get("tool_calls") or ()]
        return Answer(body.sha256, [(_kind(names), compact({"content": None} | kept))], _billed(billed, cached, 0))

    async def anthropic(body: Body) -> Answer:
        message = (await client.messages.create(**_request(body, model))).to_dict(mode="json")
        names = [block["name"] for block in message["content"] if block["type"] == "tool_use"]
        written = compact({"role": "assistant", "content": message["content"]})
        usage: dict[str, Any] = message.get("usage") or {}
        return Answer(
            body.sha256, [(_kind(names), written)], _billed(usage, usage.get("cache_read_input_tokens") or 0, 0)
        )

    return {"responses": responses, "chat": chat, "anthropic": anthropic}[format_name]


async def play(
    task: Task, arm: Arm, policy: Policy, format_: Format, sandbox: Sandbox, respond: Respond
) -> tuple[Played, list[Answer]]:
    """Play a task with a model that decides for itself.

    `executed` says that it made the calls of the ground truth and no other, and that the state is right.

    """
    answers: list[Answer] = []
    async with opened(task, arm, policy, format_, sandbox) as player:
        player.search_by_itself()
        for turn in task.turns:
            player.say(turn.question)
            for _ in range(TURNS):
                answer = await respond(player.body())
                answers.append(answer)
                if not await player.took([Part(kind, text) for kind, text in answer.output]):
                    break
            else:
                player.broken = True
            player.check(turn)
        wanted = [call for turn in task.turns for call in turn.calls]
        return player.done(task, complete=same_calls(player.played.made, wanted)), answers


def write(file: Path, tapes: Sequence[Tape]) -> None:
    """Write a cassette.

    Raises:
        ConfigurationError: It cannot be written.
    """
    lines = [msgspec.json.encode(tape).decode() for tape in tapes]
    written.put(file, "".join(f"{line}\n" for line in lines).encode())


def read(file: Path) -> list[Tape]:
    """Read a cassette.

    Raises:
        ConfigurationError: It cannot be read, or is none.
    """
    return written.read_lines(file, Tape, "a cassette, as `sandbridge bench context record` writes one")


def _request(body: Body, model: str) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(body.text) | {"model": model}
    if request.get("store") is False:
        request["include"] = ["reasoning.encrypted_content"]  # or its reasoning could not be sent back
    return request


def _kind_of_item(item: dict[str, Any]) -> Kind:
    if item["type"] == "message":
        return "answer"
    return _kind([item.get("name", "")])


def _kind(names: Sequence[str]) -> Kind:
    if not names:
        return "answer"
    return "code" if TOOL_NAME in names else "calls"


def _detail(usage: dict[str, Any], part: str, name: str) -> int:
    inner: dict[str, Any] = usage.get(part) or {}
    return int(inner.get(name) or 0)


def _billed(usage: dict[str, Any], cached: int, reasoning: int) -> dict[str, int]:
    wanted = {"input": usage.get("input_tokens", 0), "cached": cached, "output": usage.get("output_tokens", 0)}
    wanted |= {"cache_write": usage.get("cache_creation_input_tokens") or 0, "reasoning": reasoning}
    return {name: int(number) for name, number in wanted.items()}
