"""What a locked worker can still do, what ends it, and who can end it: with real processes behind all walls."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import jail, landlock, seccomp, standing, walls

from .jailed import (
    AS_ROOT,
    DEADLINE_S,
    ENVIRONMENT,
    command,
    kernel_can_seal_code,
    kernel_has_landlock,
    linux,
    root,
    run,
    users,
)

MIB = 1 << 20

# ---- what native code can do -----------------------------------------------------------------------------------------


@linux
@users
def test_native_code_in_a_locked_worker_is_refused_all_but_five_calls(user: str) -> None:
    found = run("attacks", user=user)
    report = found.pop("walls")
    assert [report[wall] for wall in standing.required()] == [""] * len(standing.required())
    assert found.pop("V8") == {"6 * 7": 42}
    assert found.pop("allowed") == {
        "map memory": "done",
        "wake a futex": "done",
        "own process id": "done",
        "name the thread": "done",
        "own CPU clock": "done",
    }
    assert found.pop("Python") == {
        "open a file": "PermissionError",
        "list a folder": "PermissionError",
        "fork": "PermissionError",
        "run a command": "PermissionError",
        "start a thread": "RuntimeError",
    }
    answers = {what: answer for rows in found.values() for what, answer in rows.items()}
    assert {what: answer for what, answer in answers.items() if answer != "EPERM"} == {
        "clone3": "ENOSYS",
        "type into a terminal": "ENOTTY",
        "count what can be read": "ENOTTY",
    }
    assert sorted(found) == [
        "descriptors",
        "files",
        "kernel surface",
        "memory",
        "network",
        "own walls",
        "processes",
        "violations, answered",
    ]


@linux
def test_each_violation_ends_the_worker_with_sigsys() -> None:
    found = run("violations")
    missing = {"fork", "vfork", "modify_ldt"} if os.uname().machine == "aarch64" else set[str]()
    x32 = {"getpid by its x32 number"} if os.uname().machine == "x86_64" else set[str]()
    assert found == dict.fromkeys({*seccomp.VIOLATIONS} - missing | x32, "SIGSYS")


@linux
@pytest.mark.parametrize("strays", [0, 20])
@pytest.mark.parametrize("channel", [3, 4, 5, 6, 40])
def test_a_locked_worker_has_its_channel_and_nothing_on_the_standard_streams(channel: int, strays: int) -> None:
    found = run("descriptors", channel=channel, strays=strays)
    expected = {"0": True, "1": True, "2": True, str(channel): False}
    assert found["late"] == expected
    # Beside those an isolate may meet landlock's rules and /proc/self/status (and maps, before kernel 6.3).
    assert found["early"].items() >= expected.items()
    assert len(found["early"]) <= len(expected) + 3
    assert (found["landlock"] == "") is kernel_has_landlock()


@linux
@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_descriptors_are_closed_without_close_range(code: int) -> None:
    found = run("descriptors", pretend=[{"call": "close_range", "errno": code}])
    assert found["late"] == {"0": True, "1": True, "2": True, "3": False}


@linux
@root
def test_the_groups_of_root_are_given_up() -> None:
    assert run("groups") == [walls.NOBODY] * 3


@linux
@users
def test_landlock_and_sealed_code_hold_without_the_filter(user: str) -> None:
    version = landlock.version() if kernel_has_landlock() else 0
    found = run("before_the_filter", user=user)
    files = {"read a file": "EACCES", "read the seeds": "done", "write the seeds": "EACCES"} if version >= 1 else {}
    tcp = {"bind TCP": "EACCES", "connect TCP": "EACCES"} if version >= 4 else {}
    outside = {"connect to a socket outside": "EPERM", "signal the zygote": "EPERM"} if version >= 6 else {}
    code = {"map code": "EACCES"} if kernel_can_seal_code() else {}
    expected = files | tcp | outside | code
    assert {what: found[what] for what in expected} == expected


# ---- limits ----------------------------------------------------------------------------------------------------------


@linux
def test_the_cpu_timer_ends_a_program_and_the_backstop_one_that_blocks_it() -> None:
    assert run("cpu") == {
        "in Python": "SIGPROF",
        "in V8": "SIGPROF",
        "with the timer's signal blocked": "SIGKILL",
        "waiting": "back",
    }


@linux
def test_a_host_that_ignores_and_blocks_signals_switches_off_neither_timer_nor_waiting() -> None:
    found = run("cpu", ignored=True)
    assert (found["in Python"], found["in V8"]) == ("SIGPROF", "SIGPROF")


@linux
@users
def test_the_kernel_bounds_what_a_worker_maps(user: str) -> None:
    found = run("memory", user=user)
    assert found["a buffer over the limit is a RangeError"]
    assert 60 <= found["mapped MiB"] <= 64


@given(memory_bytes=st.integers(8 * MIB, 1 << 40))
def test_the_bounds_on_memory_rise_from_heap_to_watchdog_to_kernel(memory_bytes: int) -> None:
    plan = jail.memory_plan(memory_bytes)
    assert memory_bytes == plan.heap_bytes < plan.watchdog_bytes < plan.data_bytes


def test_the_bounds_on_memory_of_64_mib() -> None:
    assert jail.memory_plan(64 * MIB) == jail.MemoryPlan(
        heap_bytes=64 * MIB, watchdog_bytes=96 * MIB, data_bytes=192 * MIB
    )


@linux
def test_a_kernel_that_only_pretends_to_bound_memory_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walls, "limit", lambda *_: None)
    status = os.open("/proc/self/status", os.O_RDONLY)
    try:
        with pytest.raises(walls.NoWall, match=r"^RLIMIT_DATA is set, but the kernel does not keep to it$"):
            walls.memory_limit(status, 64 * MIB)
    finally:
        os.close(status)


# ---- parents and hosts -----------------------------------------------------------------------------------------------


@linux
@users
def test_a_host_can_watch_and_end_a_locked_worker_which_dies_with_its_zygote(user: str) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    zygote = subprocess.Popen(
        command("held", user=user, fd=theirs.fileno()),
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    try:
        pid, answer = (int(word) for word in ours.recv(100).split())
        assert answer == 42
        said = {"seccomp": "", "no_new_privs": "", "capabilities": "", "uid": ""}
        assert standing.stands(pid) == said
        threads = [task.joinpath("status").read_text("utf-8") for task in Path(f"/proc/{pid}/task").iterdir()]
        assert [standing.said_by_kernel(thread) for thread in threads] == [said, said]  # the isolate has one of its own
        if AS_ROOT and user == "self":
            assert [re.findall(r"CapBnd:\t(\w+)", thread) for thread in threads] == [["0" * 16]] * 2
        assert int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) > 0
        handle = os.pidfd_open(pid)
        zygote.kill()
        assert ours.recv(1) == b""  # the worker held the other end
        assert select.select([handle], [], [], DEADLINE_S)[0] == [handle]
        os.close(handle)
    finally:
        zygote.kill()
        zygote.communicate()
        ours.close()


@linux
@users
def test_a_host_can_kill_a_locked_worker(user: str) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    with subprocess.Popen(
        command("held", user=user, fd=theirs.fileno()),
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    ) as zygote:
        theirs.close()
        handle = os.pidfd_open(int(ours.recv(100).split()[0]))
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        assert ours.recv(1) == b""
        os.close(handle)
        ours.close()
        zygote.kill()


@linux
def test_a_worker_whose_parent_is_gone_ends_before_it_does_anything() -> None:
    assert run("orphan") == "exit 70"
