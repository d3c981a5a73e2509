"""Stands in the place of the zygote and forks workers that do all they can to the host: no V8, no walls, its own user.

    python hostile_zygote.py SETTINGS FIRST BEHAVIOUR   SETTINGS as for the real one; the n-th worker has seed FIRST + n

Speaks the zygote's side rightly (`sandbox/zygote.py`): the zygote runs no program. Its workers speak as `hostile.py`
has it, and misbehave as processes: they never read, drip, flood, close, die, stop.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable

from hostile import Hostile

READY = b'{"type":"ready","walls":{"process":""},"engine":"1","digest":"d"}'


def framed(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


class Line:
    """The worker's end of its channel."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.descriptor, view) :]

    def read(self) -> bytes:
        """The host's next frame; ends the process where the host is gone."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = os.read(self.descriptor, size - len(data))
            if not more:
                os._exit(0)
            data += more
        return data


def greeted(line: Line) -> None:
    line.write(framed(READY))
    line.read()


def speaks(line: Line, worker: Hostile) -> None:
    """Says what is wrong, and reads what it is answered."""
    greeted(line)
    while True:
        for piece in worker.cut(worker.frames("running")):
            line.write(piece)
        line.read()


def greets_wrongly(line: Line, worker: Hostile) -> None:
    worker.badness = 0.6
    for piece in worker.cut(worker.frames("starting")):
        line.write(piece)
    speaks(line, worker)


CALL = b'{"type":"wave","calls":[{"id":1,"tool":"big","arguments":[{}]},{"id":2,"tool":"echo","arguments":[{}]}]}'


def never_reads(line: Line, worker: Hostile) -> None:
    greeted(line)
    line.write(framed(CALL))
    signal.pause()


def reads_slowly(line: Line, worker: Hostile) -> None:
    greeted(line)
    line.write(framed(CALL))
    while True:
        line._exactly(1)


def drips(line: Line, worker: Hostile) -> None:
    greeted(line)
    line.write((1 << 20).to_bytes(4, "big"))
    while True:
        line.write(b" ")


def floods(line: Line, worker: Hostile) -> None:
    """Many waves at once, each right by itself."""
    greeted(line)
    while True:
        line.write(framed(worker.wave(may_end=False)))


def calls_again(line: Line, worker: Hostile) -> None:
    """The same call in each wave, and one more."""
    greeted(line)
    number = 1
    while True:
        again = worker.random.randrange(1, number + 1)
        line.write(framed(b'{"type":"wave","calls":[{"id":%d,"tool":"echo","arguments":[{}]}]}' % again))
        number += 1
        line.read()


def says_more(line: Line, worker: Hostile) -> None:
    greeted(line)
    piece = worker.random.choice((b"", b',"text":["",""]', b',"awaits":[1,2,3]', b',"logs":[]'))
    while True:
        line.write(framed(b'{"type":"wave"%b,"more":true}' % piece))
        line.read()


def closes(line: Line, worker: Hostile) -> None:
    greeted(line)
    line.write(framed(CALL)[: worker.random.randrange(120)])
    os.close(line.descriptor)
    signal.pause()


def ends(line: Line, worker: Hostile) -> None:
    greeted(line)
    if worker.random.random() < 0.5:
        line.write(framed(CALL))
    if worker.random.random() < 0.5:
        os._exit(worker.random.randrange(256))
    os.kill(os.getpid(), worker.random.choice((9, 11, 6, 5, 31, 27, 24, 15, 19)))
    signal.pause()


def goes_on(line: Line, worker: Hostile) -> None:
    """After its last word."""
    greeted(line)
    line.write(
        framed(b'{"type":"wave","end":{"type":"returned","value":1}}') + framed(CALL) * worker.random.randrange(3)
    )
    while True:
        line.write(framed(CALL))


BEHAVIOURS: dict[str, Callable[[Line, Hostile], None]] = {
    each.__name__: each
    for each in (
        speaks, greets_wrongly, never_reads, reads_slowly, drips, floods, calls_again, says_more, closes, ends, goes_on
    )
}  # fmt: skip
OFTEN = ["speaks"] * 10 + [name for name in BEHAVIOURS if name != "greets_wrongly"]


def act(channel: int, seed: int, behaviour: str) -> None:
    os.dup2(channel, 3)
    os.closerange(4, 256)
    worker = Hostile(seed)
    name = worker.random.choice(OFTEN) if behaviour == "any" else behaviour
    try:
        BEHAVIOURS[name](Line(3), worker)
    except OSError:  # the host has closed its end
        os._exit(0)


def main() -> None:
    settings, seed, behaviour = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    control = socket.socket(fileno=settings["channel"])
    control.send(b"ready")
    while True:
        request, ancillary, *_ = control.recvmsg(16, socket.CMSG_SPACE(4))
        if not request:
            os._exit(0)
        if request[:1] == b"R":
            _, status, usage = os.wait4(int.from_bytes(request[1:5], "little"), 0)
            control.send(struct.pack("<IQQ", status, usage.ru_maxrss << 10, 0))
            continue
        channel = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
        pid = os.fork()
        if pid == 0:
            control.close()
            act(channel, seed, behaviour)
            os._exit(0)
        os.close(channel)
        seed += 1
        control.send(pid.to_bytes(4, "little"))


if __name__ == "__main__":
    main()
