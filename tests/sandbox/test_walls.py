"""Each wall that does not stand says why, and only it: what a zygote's and a worker's report says, and who reads it.

Where a kernel lacks something, a filter in front of ours makes it look so: the reasons are then the same on every
machine.
"""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from typing import Any

import pytest

from sandbox import jail, standing
from sandbox.errors import WallMissing
from sandbox.jail import Jail

from .jailed import AS_ROOT, DEADLINE_S, ENVIRONMENT, kernel_has_landlock, linux, root, run, users

STANDING = dict.fromkeys(jail.WALLS, "")
LEFT_OUT = "the kernel has it, but it was left out when it booted (see its parameter lsm=)"

# ---- what is reported ------------------------------------------------------------------------------------------------


@linux
@users
@pytest.mark.parametrize("jit", [False, True])
def test_every_wall_that_this_machine_offers_stands_in_a_worker(user: str, jit: bool) -> None:
    found = run("report", user=user, jit=jit)
    report = found["walls"]
    assert list(report) == list(jail.WALLS)
    if jit:
        text = report.pop("code_pages")
        assert re.fullmatch(r"\d+ KiB can be written and executed: JIT was asked for", text)
    # Machines differ in these two; nothing else depends on kernel or container.
    assert {wall: reason for wall, reason in report.items() if reason and wall != "namespaces"} == (
        {} if kernel_has_landlock() else {"landlock": report["landlock"]}
    )
    assert found["required"] == list(standing.required())


def refused(call: str, code: int, **where: int) -> dict[str, object]:
    return {"call": call, "errno": code, **where}


FORBIDDEN = "EPERM (an AppArmor or container profile forbids them)"
SETTING = {"argument": 2}  # prlimit64 with new limits
NO_LIMIT = "not allowed to raise maximum limit"


@linux
@users
@pytest.mark.parametrize(
    ("wall", "pretend", "reason"),
    [
        ("no_new_privs", [refused("prctl", errno.EPERM, argument=0, value=38)], "EPERM (prctl)"),
        ("parent_death", [refused("prctl", errno.EPERM, argument=0, value=1)], "EPERM (prctl)"),
        ("parent_death", [refused("prctl", 0, argument=0, value=1)], "the kernel did not keep it"),
        ("landlock", [refused("landlock_create_ruleset", errno.ENOSYS)], "the kernel has none (ENOSYS)"),
        ("landlock", [refused("landlock_create_ruleset", errno.EOPNOTSUPP)], LEFT_OUT),
        ("capabilities", [refused("capset", errno.EPERM)], "EPERM (capset)"),
        ("dumpable", [refused("prctl", errno.EPERM, argument=0, value=4)], "EPERM (prctl)"),
        (
            "rlimits",
            [refused("prlimit64", errno.EPERM, **SETTING), refused("setrlimit", errno.EPERM)],
            "; ".join(f"RLIMIT_{n}: {NO_LIMIT}" for n in "CORE FSIZE MEMLOCK MSGQUEUE CPU NPROC NOFILE".split()),
        ),
        (
            "memory_limit",
            [refused("prlimit64", errno.EPERM, **SETTING), refused("setrlimit", errno.EPERM)],
            f"RLIMIT_DATA: {NO_LIMIT}",
        ),
        (
            "memory_limit",
            [refused("prlimit64", 0, **SETTING), refused("setrlimit", 0)],
            "RLIMIT_DATA: the kernel did not keep it",
        ),
        ("rlimits", [refused("setitimer", errno.EPERM)], "EPERM (Operation not permitted)"),
        ("rlimits", [refused("setitimer", 0)], "the CPU timer did not start"),
        ("seccomp", [refused("seccomp", errno.ENOSYS)], "ENOSYS (seccomp)"),
        ("seccomp", [refused("seccomp", 0)], "the filter is in force, but a refused call went through"),
    ],
)
def test_a_wall_that_cannot_be_raised_says_why_and_stops_no_other(
    user: str, wall: str, pretend: list[dict[str, object]], reason: str
) -> None:
    found = run("report", user=user, pretend=pretend)
    others = {"rlimits", "memory_limit"} if any(row["call"] == "prlimit64" for row in pretend) else {wall}
    assert found["walls"][wall] == reason
    assert found["ending"] == "exit 0"
    untouched = {name: text for name, text in found["walls"].items() if name not in others}
    assert {name for name, text in untouched.items() if text} <= {"namespaces", "landlock"}
    assert ("landlock" in found["required"]) is (kernel_has_landlock() and wall != "landlock")


@linux
@users
def test_a_landlock_that_does_not_hold_is_found_out(user: str) -> None:
    if not kernel_has_landlock():
        pytest.skip("this kernel has no landlock")
    pretend = [refused("landlock_restrict_self", 0)]
    reason = "the rules are in force, but a directory could still be opened"
    assert run("report", user=user, pretend=pretend)["walls"]["landlock"] == reason
    pretend = [refused("landlock_restrict_self", errno.E2BIG)]
    assert run("report", user=user, pretend=pretend)["walls"]["landlock"] == "E2BIG (landlock_restrict_self)"


@linux
@users
def test_refused_namespaces_are_reported_and_the_rest_stands(user: str) -> None:
    found = run("report", user=user, pretend=[refused("unshare", errno.EPERM)])
    of_root = f"got none; missing net, ipc, uts, cgroup, mount: {FORBIDDEN}"
    ordinary = user == "nobody" or not AS_ROOT
    assert found["walls"]["namespaces"] == (f"no user namespace: {FORBIDDEN}" if ordinary else of_root)
    assert {wall for wall, reason in found["walls"].items() if reason} - {"landlock"} == {"namespaces"}


@linux
@root
def test_some_namespaces_refused_are_named_beside_those_that_were_got() -> None:
    pretend = [
        refused("unshare", errno.ENOSPC, argument=0, value=0x40000000),
        *(refused("unshare", 0, argument=0, value=flag) for flag in (0x08000000, 0x04000000, 0x02000000, 0x00020000)),
    ]
    assert run("report", pretend=pretend)["walls"]["namespaces"] == (
        "got ipc, uts, cgroup, mount; missing net: ENOSPC (the limit in /proc/sys/user is reached)"
    )


@linux
@root
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"without_capability": 7}, "still root: CAP_SETUID is missing, which it takes to leave root"),
        (
            {"without_capability": 5},
            "still root: CAP_KILL is missing, which it takes for the host to end a process of another user",
        ),
        (
            {"pretend": [refused("setresuid", errno.EINVAL)]},
            "still root: EINVAL on becoming 65534 (is it mapped here?)",
        ),
        ({"pretend": [refused("setresuid", 0)]}, "the kernel did not keep the new user"),
    ],
)
def test_a_root_that_cannot_become_nobody_says_what_is_missing(given: dict[str, object], reason: str) -> None:
    assert run("report", **given)["walls"]["uid"] == reason


@linux
@root
def test_capabilities_that_stay_are_found_out() -> None:
    found = run("report", pretend=[refused("capset", 0)])
    assert found["walls"]["capabilities"] == "the kernel did not take them away"


@linux
def test_a_process_that_stays_dumpable_is_found_out() -> None:
    user = "nobody" if AS_ROOT else "self"  # root's change of user makes the kernel do it unasked
    found = run("report", user=user, pretend=[refused("prctl", 0, argument=0, value=4)])
    assert found["walls"]["dumpable"] == "the kernel did not keep it"


CODE = re.compile(r"\d+ KiB can be written and executed")
UNSEALED = refused("mprotect", 0, argument=2, value=5)


@linux
@users
def test_a_page_of_callbacks_that_stays_writable_is_found_out(user: str) -> None:
    assert CODE.fullmatch(run("report", user=user, pretend=[UNSEALED])["walls"]["code_pages"])


@linux
@users
@pytest.mark.parametrize("code", [errno.EINVAL, 0])
def test_without_the_kernels_promise_every_worker_is_looked_at_for_writable_code(user: str, code: int) -> None:
    old = [refused("prctl", code, argument=0, value=65)]
    assert run("report", user=user, pretend=old)["walls"]["code_pages"] == ""
    mapped = run("report", user=user, pretend=old, maps_code=True)["walls"]["code_pages"]
    assert mapped == "4 KiB can be written and executed"
    assert CODE.fullmatch(run("report", user=user, pretend=[*old, UNSEALED])["walls"]["code_pages"])


@linux
def test_what_is_available_is_what_a_worker_gets() -> None:
    assert jail.available() == run("report")["walls"]


@linux
def test_a_probe_that_cannot_run_makes_every_wall_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert jail.available() == dict.fromkeys(jail.WALLS, "the probe ended with status 1")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    reason = "the probe could not run: [Errno 2] No such file or directory: '/nowhere/python'"
    assert jail.available() == dict.fromkeys(jail.WALLS, reason)


@linux
def test_a_process_that_is_not_there_stands_behind_nothing() -> None:
    walls_checked = ("seccomp", "no_new_privs", "capabilities", "uid")
    reason = "/proc/4194305/status cannot be read: ENOENT"  # one over the largest id that a kernel gives
    assert standing.stands(4194305) == dict.fromkeys(walls_checked, reason)


STATUS = (
    "Name:\tpython\nUid:\t{uid}\nCapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{cap}\nCapAmb:\t{none}\n"
    "NoNewPrivs:\t{nnp}\nSeccomp:\t{seccomp}\n"
)
NO_CAPABILITY = "0000000000000000"


@pytest.mark.parametrize(
    ("change", "wall", "reason"),
    [
        ({"seccomp": "0"}, "seccomp", "Seccomp is 0, not 2"),
        ({"seccomp": "1"}, "seccomp", "Seccomp is 1, not 2"),
        ({"nnp": "0"}, "no_new_privs", "NoNewPrivs is 0, not 1"),
        ({"cap": "0000000000000400"}, "capabilities", "CapEff is 0000000000000400"),
        ({"uid": "65534\t65534\t0\t65534"}, "uid", "Uid is 65534 65534 0 65534"),
        ({}, "", ""),
    ],
)
def test_the_kernels_word_is_read_wall_by_wall(change: dict[str, str], wall: str, reason: str) -> None:
    honest = {"uid": "1000\t1000\t1000\t1000", "none": NO_CAPABILITY, "cap": NO_CAPABILITY, "nnp": "1", "seccomp": "2"}
    found = standing.said_by_kernel(STATUS.format(**honest | change))
    assert {name: text for name, text in found.items() if text} == ({wall: reason} if wall else {})


HONEST = {"uid": "1\t1\t1\t1", "none": NO_CAPABILITY, "cap": NO_CAPABILITY, "nnp": "1", "seccomp": "2"}


@pytest.mark.parametrize(
    ("its", "hosts", "reason"),
    [
        ("1", "0", ""),
        ("2", "1", ""),
        ("1", "1", "it has no filter but the 1 of its host"),
        ("0", "0", "it has no filter but the 0 of its host"),
        (None, "1", ""),  # a kernel that does not count them
    ],
)
def test_the_filter_of_a_container_is_not_the_workers(its: str | None, hosts: str, reason: str) -> None:
    status = STATUS.format(**HONEST) + (f"Seccomp_filters:\t{its}\n" if its else "")
    assert standing.said_by_kernel(status, f"Seccomp_filters:\t{hosts}\n")["seccomp"] == reason


def test_a_wall_stands_where_neither_worker_nor_kernel_has_anything_against_it() -> None:
    report = {"seccomp": "ENOSYS (seccomp)", "uid": "", "landlock": "", "no_new_privs": ""}
    kernel = {"seccomp": "", "uid": "Uid is 0 0 0 0", "no_new_privs": "", "capabilities": ""}
    assert standing.found(report, kernel) == {
        "seccomp": "ENOSYS (seccomp)",
        "uid": "Uid is 0 0 0 0",
        "landlock": "",
        "no_new_privs": "",
        "capabilities": "not reported",
    }


def test_what_the_kernel_does_not_say_does_not_stand() -> None:
    assert standing.said_by_kernel("") == {
        "seccomp": "Seccomp is not said, not 2",
        "no_new_privs": "NoNewPrivs is not said, not 1",
        "capabilities": "CapEff is not said, CapPrm is not said, CapInh is not said, CapAmb is not said",
        "uid": "Uid is not said",
    }


# ---- deciding --------------------------------------------------------------------------------------------------------


def test_a_required_wall_that_does_not_stand_is_named_with_its_reason_and_the_ways_out() -> None:
    report = {**STANDING, "seccomp": "ENOSYS (seccomp)", "namespaces": "no user namespace"}
    standing.demand(report, {"process", "rlimits"})
    with pytest.raises(WallMissing) as caught:
        standing.demand(report, {"process", "seccomp"})
    assert str(caught.value) == (
        "the wall 'seccomp' (a filter refuses all but some 30 system calls) does not stand: ENOSYS (seccomp). "
        "Run where the kernel and the container's profile allow it (`sandbridge doctor` lists what they do), "
        "or leave 'seccomp' out of Sandbox(require=...) and go without"
    )


def test_a_wall_that_is_not_reported_does_not_stand() -> None:
    with pytest.raises(WallMissing, match=r"does not stand: not reported\."):
        standing.demand({}, {"process"})


def test_a_wall_that_does_not_exist_cannot_be_required() -> None:
    with pytest.raises(ValueError, match=r"^require= names moat, but the walls are process, no_new_privs, "):
        standing.demand(STANDING, {"process", "moat"})
    with pytest.raises(ValueError, match=r"^require= names seccom, but the walls are .*; 'all' is all of them$"):
        standing.required("seccom")


def test_all_walls_can_be_required_by_one_word_and_one_of_them_by_its_name() -> None:
    assert standing.required("all") == tuple(jail.WALLS)
    assert standing.required("seccomp") == ("seccomp",)
    assert standing.required(()) == ()
    standing.demand(STANDING, "all")
    for wall in jail.WALLS:
        with pytest.raises(WallMissing, match=f"^the wall '{wall}' .* does not stand: gone"):
            standing.demand({**STANDING, wall: "gone"}, "all")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cpu_s": 0}, "Jail needs cpu_s and data_bytes above 0, not 0 and 1"),
        ({"data_bytes": 0}, "Jail needs cpu_s and data_bytes above 0, not 1 and 0"),
        ({"channel": 2}, "Jail.channel=2 is a standard stream, which a worker has on /dev/null: use 3"),
        ({"namespaces": ("pid",)}, "Jail.namespaces has pid, but only net, ipc, uts, cgroup, mount are to be left"),
        ({"violations": ("opne",)}, "Jail.violations has opne, whose numbers sandbox/seccomp.py does not have"),
    ],
)
def test_an_impossible_jail_stops_at_construction(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Jail(**{"cpu_s": 1, "data_bytes": 1, **change})


ELSEWHERE = """
import ctypes, json, platform, subprocess, sys, pathlib, mmap, signal
sys.platform, system = sys.argv[1:]
platform.system = lambda: system
sys.modules["resource"] = sys.modules["fcntl"] = None if sys.platform == "win32" else sys.modules.get("posix")
from sandbox import jail, standing
cell = jail.Jail(cpu_s=1, data_bytes=1 << 20)
raised = jail.in_zygote(cell, parent=1)
jail.seal_code_pages(cell, raised)
jail.before_forking(cell, raised, parent=1)
jail.in_worker(cell, raised, channel=1, parent=1)
jail.before_program(cell, raised)
assert raised.walls == jail.available()
print(json.dumps([raised.walls, standing.required(), standing.stands(1)]))
"""


@pytest.mark.parametrize(("platform", "system"), [("darwin", "Darwin"), ("win32", "Windows")])
def test_elsewhere_every_wall_but_the_process_says_that_it_is_not_there(platform: str, system: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, platform, system],
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    reason = f"no such wall on {system}"
    report, required, said = json.loads(ended.stdout)
    assert report == {**dict.fromkeys(jail.WALLS, reason), "process": ""}
    assert required == ["process"]
    assert said == dict.fromkeys(("seccomp", "no_new_privs", "capabilities", "uid"), reason)
