"""The command on a terminal, and signals: what a person sees, types and ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bridge

ROOT = Path(bridge.__file__).parents[1]
DEADLINE_S = 60
TOOLS = '''
import os
from bridge import tool

@tool
def order(number: int) -> dict:
    """One order."""
    return {"number": number, "text": "x" * 1000}

@tool
def refund(number: int, amount: int) -> str:
    """Gives money back."""
    return f"{amount} for {number}"

@tool
async def hang() -> None:
    """Never answers."""
    import anyio
    os.write(int(os.environ["READY"]), b"!")
    await anyio.sleep_forever()
'''
CONFIG = """
functions = ["tools.py:*"]
[[rules]]
tool = "refund"
decision = "ask"
reason = "money"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project: functions, a rule that asks about one of them."""
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "sandbridge.toml").write_text(CONFIG)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **more}


def descendants(pid: int) -> list[int]:
    """Processes below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [child for child, parent in parents.items() if parent == pid]
    return found + [each for child in found for each in descendants(child)]


def watched(pid: int) -> list[int]:
    """A pidfd for each process below this one: it becomes readable when the process has ended."""
    return [os.pidfd_open(each) for each in descendants(pid)]


def all_ended(pidfds: list[int]) -> bool:
    ended = [bool(select.select([each], [], [], DEADLINE_S)[0]) for each in pidfds]
    for each in pidfds:
        os.close(each)
    return all(ended)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="looks at processes as Linux shows them")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_run_and_leaves_no_process(folder: Path, number: signal.Signals, status: int):
    (folder / "p.js").write_text("await tools.hang()")
    ready, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "bridge.cli", "run", "p.js"],
        cwd=folder,
        env=environment(READY=str(writing)),
        pass_fds=[writing],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    with process:
        assert os.read(ready, 1) == b"!"
        os.close(ready)
        left = watched(process.pid)
        assert left
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (status, "", "cancelled; 1 call had been sent (hang 1)\n")
    assert all_ended(left)


class Terminal:
    """The command on a terminal of its own; standard output is a pipe."""

    def __init__(self, folder: Path, *args: str, **more: str) -> None:
        import fcntl
        import pty
        import termios

        self.master, slave = pty.openpty()
        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bridge.cli", *args],
            cwd=folder,
            env=environment(COLUMNS="200", **more),
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )
        os.close(slave)

    def until(self, text: str) -> str:
        """What it shows up to and with this text, since the last time."""
        while text not in self.seen:
            assert select.select([self.master], [], [], DEADLINE_S)[0], f"it never showed {text!r}: {self.seen!r}"
            self.seen += os.read(self.master, 4096).decode()
        shown, found, self.seen = self.seen.partition(text)
        return shown + found

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> tuple[int, str]:
        """Exit status and standard output."""
        out, _ = self.process.communicate(timeout=DEADLINE_S)
        os.close(self.master)
        return self.process.returncode, out.decode()


@pytest.fixture
def terminal(folder: Path) -> Callable[..., Terminal]:
    """Opens the command on a terminal."""
    pytest.importorskip("termios", reason="terminals as Unix has them")

    def open_terminal(*args: str, program: str, **more: str) -> Terminal:
        (folder / "p.js").write_text(program)
        return Terminal(folder, *args, **more)

    return open_terminal


REFUND = "return await tools.refund({number: 1, amount: 5})"


def test_on_a_terminal_an_approval_is_asked_for_at_the_prompt(terminal: Callable[..., Terminal]):
    here = terminal("run", "p.js", program=REFUND)
    assert "call of refund\r\n" in here.until("q later] ")
    here.type("y\n")
    here.until("approvals: 1 asked for, 1 approved")
    assert here.end() == (0, "[sandbridge] completed; 1 call\n5 for 1\n")


def test_a_denial_at_the_prompt_reaches_the_program(terminal: Callable[..., Terminal]):
    here = terminal("run", "p.js", program=f"try {{ {REFUND} }} catch (error) {{ return error.code }}")
    here.until("q later] ")
    here.type("n\n")
    here.until("may be empty): ")
    here.type("too much\n")
    here.until("approvals: 1 asked for, 1 denied")
    status, out = here.end()
    assert (status, out.split("\n")[1]) == (0, "denied")


def test_later_at_the_prompt_pauses(terminal: Callable[..., Terminal]):
    here = terminal("run", "p.js", program=REFUND)
    here.until("q later] ")
    here.type("q\n")
    here.until("  sandbridge resume ")
    assert here.end()[0] == 3


def test_without_an_approver_nobody_is_asked_on_a_terminal(terminal: Callable[..., Terminal]):
    here = terminal("run", "p.js", "--no-approver", program=REFUND)
    assert "q later" not in here.until("  sandbridge resume ")
    assert here.end()[0] == 3


def test_ctrl_c_at_the_prompt_cancels(terminal: Callable[..., Terminal]):
    here = terminal("run", "p.js", program=REFUND)
    here.until("q later] ")
    left = watched(here.process.pid)
    here.type("\x03")
    here.until("cancelled; 0 calls had been sent")
    assert here.end() == (130, "")
    assert all_ended(left)


def test_long_work_shows_its_progress_on_a_terminal(terminal: Callable[..., Terminal]):
    here = terminal("run", "p.js", program="await tools.order({number: 1}); await sleep(200000)")
    shown = here.until("0 calls running, 1 done")
    assert "\x1b[" in shown
    here.type("\x03")
    here.until("cancelled; 1 call had been sent (order 1)")
    assert here.end() == (130, "")


def test_no_color_is_respected_on_a_terminal(terminal: Callable[..., Terminal]):
    here = terminal("run", "p.js", program="return 1", NO_COLOR="1")
    shown = here.until("of CPU time")
    assert "\x1b[3" not in shown
    assert here.end()[0] == 0
