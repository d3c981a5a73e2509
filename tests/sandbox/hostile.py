"""What a worker says that is no longer ours: frames that are wrong in every way, made from a seed.

Most of an exchange has to be right, or it ends at its first byte: so frames are built as an honest worker builds them,
and then something in them is wrong: a value, a key, a byte, the header, the order, the number of frames.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

Text = bytes  # JSON text that is to stand as it is, right or not

NUMBERS: Final = [
    *(b"0 1 2 3 -1 -0 1.5 1e3 1e308 1e309 -1e309 1e-400 01 +1 .5 1. 0x10 NaN Infinity -Infinity true".split()),
    *(str((1 << bits) + off).encode() for bits in (7, 31, 32, 53, 63, 64, 65, 128) for off in (-1, 0, 1)),
    b"9" * 400,
    b"9" * 5000,
    b"1." + b"0" * 400,
]
STRINGS: Final = [
    *(b'"" "echo" "rm" "\\ud800" "\\udc00\\ud800" "\\ud83d\\ude00" "\\u0000" "\\x41" "\\" "'.split()),
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    b'"\xc0\x80"',
    b'"a\nb"',
    b'"\\u001b[31m"',
    b'"' + b"x" * 3000 + b'"',
    b'"unclosed',
    b'"__proto__"',
    b'"[sandbridge] completed"',
]
OTHERS: Final = [b"null", b"{}", b"[]", b"[[]]", b"nul", b"", b"[", b"]", b"{", b"}", b"{,}", b"[,]", b'{"a":1,"a":2}']
CODES: Final = (
    "syntax_error reference_error type_error threw module_not_available invalid_arguments tool_error unknown_tool "
    "missing_await eval_disabled empty_program denied expired stalled limit crashed violation cancelled host \x1b[2J"
).split()
TYPES: Final = "wave ready broken start deliver value error timer returned threw Wave  wav\\u0065".split(" ")


def quoted(text: str) -> Text:
    return b'"' + text.encode() + b'"'


class Hostile:
    """One worker's speech. `random` decides everything, so that a seed is a whole exchange."""

    def __init__(self, seed: int, tools: tuple[str, ...] = ("echo",)) -> None:
        self.random = random.Random(seed)
        self.tools = tools
        self.next_id = 1
        self.said: list[int] = []
        self.badness = self.random.choice((0.0, 0.02, 0.05, 0.2, 0.6))
        self.kinds: set[str] = set()

    def bad(self, kind: str, weight: float = 1.0) -> bool:
        """Whether this place is to be wrong; remembers that it was."""
        if self.random.random() < self.badness * weight:
            self.kinds.add(kind)
            return True
        return False

    # ---- values ------------------------------------------------------------------------------------------------

    def value(self, depth: int = 0) -> Text:
        roll = self.random.random()
        if roll < 0.06 and self.bad("nesting", 0.5):
            deep = self.random.choice((50, 500, 1200, 100_000))
            return self.random.choice((b"[" * deep, b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep))
        if roll < 0.35:
            return self.random.choice(STRINGS) if self.bad("text") else quoted(self.random.choice("a b ok".split()))
        if roll < 0.6:
            return self.random.choice(NUMBERS) if self.bad("number") else str(self.random.randrange(100)).encode()
        if roll < 0.75 or depth > 3:
            return self.random.choice(OTHERS) if self.bad("shape") else b"null"
        parts = [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        if self.random.random() < 0.5:
            return b"[" + b",".join(parts) + b"]"
        return self.object({f"k{n}": part for n, part in enumerate(parts)})

    def object(self, fields: dict[str, Text]) -> Text:
        """JSON text of an object whose keys may be missing, doubled, unknown, escaped or out of order."""
        rows = list(fields.items())
        if rows and self.bad("missing key"):
            rows.pop(self.random.randrange(len(rows)))
        if rows and self.bad("doubled key"):
            rows.append((self.random.choice(rows)[0], self.value(3)))
        if self.bad("unknown key"):
            rows.append((self.random.choice(("x", "__proto__", "type", "id", "then")), self.value(3)))
        if self.bad("order of keys"):
            self.random.shuffle(rows)
        space = b" \t\r\n" if self.bad("white space") else b""
        made = b",".join(space + quoted(key) + b":" + space + value for key, value in rows)
        return b"{" + made + b"}"

    def number(self, honest: int, kind: str = "number") -> Text:
        return self.random.choice(NUMBERS) if self.bad(kind) else str(honest).encode()

    def id(self) -> Text:
        """The next id, or a forged one: of a call that is open, that was answered, that is to come, that never is."""
        if self.bad("forged id"):
            near = [0, 1, self.next_id - 1, self.next_id, self.next_id + 1000, *self.said[-3:]]
            return self.random.choice((*(str(each).encode() for each in near), *NUMBERS))
        self.said.append(self.next_id)
        self.next_id += 1
        return str(self.said[-1]).encode()

    # ---- messages ----------------------------------------------------------------------------------------------

    def call(self) -> Text:
        tool = (
            self.random.choice(("rm", "", "Echo", "echo\\u0000"))
            if self.bad("tool")
            else self.random.choice(self.tools)
        )
        arguments = self.value() if self.bad("arguments") else b"[" + self.value(1) + b"]"
        fields = {"id": self.id(), "tool": quoted(tool), "arguments": arguments}
        if self.random.random() < 0.5:
            fields |= {"line": self.number(1), "column": self.number(7)}
        return self.object(fields)

    def timer(self) -> Text:
        return self.object({"id": self.id(), "ms": self.number(self.random.choice((0, 0, 1)))})

    def list_of(self, make: Callable[[], Text], most: int = 3) -> Text:
        count = self.random.randrange(most + 1)
        if self.bad("flood", 0.1):
            count = self.random.choice((200, 2000))
            one = make()
            count = min(count, (4 << 20) // (len(one) + 1))
            return b"[" + b",".join([one] * count) + b"]"
        if self.bad("no list", 0.5):
            return self.value(2)
        return b"[" + b",".join(make() for _ in range(count)) + b"]"

    def end(self) -> Text:
        if self.random.random() < 0.5:
            return self.object({"type": b'"returned"', "value": self.value()})
        code = self.random.choice(CODES) if self.bad("code") else "threw"
        fields = {"type": b'"threw"', "code": quoted(code), "name": b'"Error"', "message": self.value(4)}
        if self.random.random() < 0.5:
            fields |= {"line": self.number(1), "column": self.number(3), "call": self.number(1), "tool": quoted("echo")}
        return self.object(fields)

    def wave(self, *, may_end: bool = True) -> Text:
        fields: dict[str, Text] = {"type": b'"wave"'}
        lists: list[tuple[str, Callable[[], Text]]] = [
            ("calls", self.call),
            ("timers", self.timer),
            ("cleared", lambda: self.number(self.random.choice(self.said or [1]))),
            ("text", lambda: self.value(4) if self.bad("text") else quoted("said")),
            ("images", lambda: self.object({"mime_type": b'"image/png"', "data": b'"aGk="', "handle": b'""'})),
            ("logs", lambda: self.object({"level": b'"log"', "message": quoted("line")})),
            ("warnings", lambda: self.object({"code": quoted("w"), "message": quoted("m"), "line": self.number(1)})),
            ("awaits", lambda: self.number(1)),
            ("heard", lambda: self.number(self.random.choice(self.said or [1]))),
        ]
        for name, make in lists:
            if self.random.random() < (0.7 if name == "calls" else 0.25):
                fields[name] = self.list_of(make)
        if self.random.random() < 0.1:
            fields["dropped_logs"] = self.number(0)
        if may_end and self.random.random() < 0.15:
            fields["end"] = self.end()
        if self.random.random() < 0.08:
            fields["more"] = b"true"
        return self.object(fields)

    def message(self, state: str) -> Text:
        """One message for a state of the host, or one that stands in none: a reply to itself, a second `ready`."""
        if self.bad("wrong message", 0.5):
            kind = self.random.choice(TYPES)
            more: dict[str, Any] = {"id": self.id(), "value": self.value(2), "replies": b"[]", "now_ms": b"0"}
            return self.object({"type": quoted(kind), **more})
        if state == "starting":
            if self.bad("broken", 0.3):
                return self.object({"type": b'"broken"', "reason": self.value(4)})
            return self.object(
                {"type": b'"ready"', "walls": self.object({"process": b'""'}), "engine": b'"1"', "digest": b'"d"'}
            )
        return self.wave()

    # ---- bytes ---------------------------------------------------------------------------------------------------

    def frames(self, state: str) -> bytes:
        """What it writes when it is the worker's turn: most often one frame."""
        text = self.message(state)
        if self.bad("bytes"):
            text = self.mangled(text)
        size = len(text)
        if self.bad("header"):
            size = self.random.choice((0, 1, max(0, size - 1), size + 1, size + 1000, 1 << 20, 1 << 26, (1 << 32) - 1))
        written = size.to_bytes(4, "big") + text
        if self.bad("partial frame"):
            written = written[: self.random.randrange(len(written) + 1)]
        if len(written) < 1 << 18 and self.bad("flood of frames", 0.5):
            written *= self.random.choice((2, 3, 50))
        if self.bad("noise", 0.3):
            written = self.random.randbytes(self.random.randrange(64)) + written
        return written

    def mangled(self, text: bytes) -> bytes:
        held = bytearray(text)
        for _ in range(self.random.choice((1, 1, 2, 8))):
            at = self.random.randrange(len(held) + 1)
            match self.random.randrange(4):
                case 0:
                    held[at:at] = self.random.choice((b"\0", b"\xff", b",", b"]", b"}", b'"', b"\\", b"\xe2\x80\xa8"))
                case 1:
                    del held[at : at + self.random.choice((1, 5, 50))]
                case 2 if at < len(held):
                    held[at] ^= 1 << self.random.randrange(8)
                case _:
                    begin = self.random.randrange(len(held) + 1)
                    held[at:at] = held[begin : begin + self.random.choice((1, 10, 100))]
        return bytes(held)

    def cut(self, data: bytes) -> list[bytes]:
        """The pieces in which bytes arrive: at once, in two, or one by one."""
        match self.random.randrange(8):
            case 0 if len(data) < 400:
                return [data[at : at + 1] for at in range(len(data))]
            case 1 | 2:
                at = self.random.randrange(len(data) + 1)
                return [data[:at], data[at:]]
            case _:
                return [data]
