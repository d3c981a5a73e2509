"""Where less is to be had than here: as root and as an ordinary user, in a container's profile, without landlock.

Each setting is forced by a filter in front of ours, so that it is the same on every machine. In each: what the walls
say, that programs run with what is left, that `require=` refuses, and what native code inside can still do.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox import jail, standing

from .jailed import AS_ROOT, DEADLINE_S, ENVIRONMENT, kernel_has_landlock, linux, run, users

HOSTED = Path(__file__).with_name("hosted.py")


def refuse(code: int, *calls: str) -> list[dict[str, object]]:
    return [{"call": call, "errno": code} for call in calls]


# What a container's default profile refuses (moby's `profiles/seccomp`), as far as a jail asks for it.
CONTAINER = refuse(errno.EPERM, "unshare", "setns", "mount", "umount2", "pivot_root") + refuse(errno.ENOSYS, "clone3")
NO_LANDLOCK = refuse(errno.ENOSYS, "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
# A runtime that knows no newer call: neither descriptors nor code pages in one call (gVisor, old kernels).
OLD_KERNEL = [
    *NO_LANDLOCK,
    *refuse(errno.ENOSYS, "close_range", "clone3"),
    {"call": "prctl", "errno": errno.EINVAL, "argument": 0, "value": 65},
]
SETTINGS: dict[
    str, tuple[list[dict[str, object]], set[str]]
] = {  # name -> filters, and the walls that are then missing
    "here": ([], set()),
    "container": (CONTAINER, {"namespaces"}),
    "no landlock": (NO_LANDLOCK, {"landlock"}),
    "container without landlock": (CONTAINER + NO_LANDLOCK, {"namespaces", "landlock"}),
    "old kernel in a container": (CONTAINER + OLD_KERNEL, {"namespaces", "landlock"}),
}
settings = pytest.mark.parametrize("setting", SETTINGS)


def missing_here() -> set[str]:
    """What this machine itself does not have."""
    return {wall for wall, why in jail.available().items() if why}


def read_by_all(path: str) -> bool:
    """Whether an ordinary user may start this interpreter: one in root's home is out of its reach."""
    parts = [Path(path).resolve(), *Path(path).resolve().parents, *map(Path, filter(None, sys.path))]
    return all(part.stat().st_mode & 0o005 == 0o005 for part in parts if part.is_dir())


HOSTS = ["self", "nobody"] if AS_ROOT and read_by_all(sys.executable) else ["self"]


def host(setting: str, user: str, *require: Any, **options: Any) -> list[dict[str, Any]]:
    given = {"user": user, "pretend": SETTINGS[setting][0], "require": require, "options": options}
    ended = subprocess.run(
        [sys.executable, str(HOSTED), json.dumps(given)],
        env={**ENVIRONMENT, "HOME": "/"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    return json.loads(ended.stdout)


@linux
@settings
@pytest.mark.parametrize("user", HOSTS)
def test_programs_run_with_what_is_left_and_whoever_requires_more_is_refused(setting: str, user: str) -> None:
    missing = SETTINGS[setting][1] | missing_here()
    default, everything, one = host(setting, user, None, "all", sorted(missing)[:1] or ["seccomp"])
    assert (default["value"], default["text"]) == (42, ["said"])
    assert set(default["missing"]) == missing
    if not missing:
        assert everything["value"] == one["value"] == 42
        return
    for refused, named in ((everything, missing), (one, set(sorted(missing)[:1]))):
        for wall in named:
            assert f"the wall '{wall}' ({jail.WALLS[wall]}) does not stand: " in refused["refused"]
        ways_out = ", ".join(repr(wall) for wall in jail.WALLS if wall in named)
        assert refused["refused"].endswith(f"or leave {ways_out} out of Sandbox(require=...) and go without")


@linux
@users
@pytest.mark.parametrize("setting", [name for name in SETTINGS if name != "here"])  # which `test_jail.py` has
def test_native_code_is_refused_the_same_calls_in_every_setting(setting: str, user: str) -> None:
    found = run("attacks", user=user, pretend=SETTINGS[setting][0])
    report = found.pop("walls")
    landlock = set[str]() if kernel_has_landlock() else {"landlock"}
    assert {wall for wall, why in report.items() if why} - {"namespaces"} == SETTINGS[setting][1] - {
        "namespaces"
    } | landlock
    if "namespaces" in SETTINGS[setting][1]:
        assert report["namespaces"]
    assert found.pop("V8") == {"6 * 7": 42}
    assert set(found.pop("allowed").values()) == {"done"}
    assert set(found.pop("Python").values()) == {"PermissionError", "RuntimeError"}
    answers = {what: answer for rows in found.values() for what, answer in rows.items()}
    assert len(answers) > 250
    # A filter in front may say ENOSYS where ours says EPERM; neither lets anything through.
    assert "done" not in answers.values()
    assert {what for what, answer in answers.items() if answer not in ("EPERM", "ENOSYS")} == {
        "type into a terminal",
        "count what can be read",
    }


@linux
@pytest.mark.parametrize("setting", ["container", "old kernel in a container"])
def test_each_violation_ends_the_worker_where_a_profile_refuses_it_too(setting: str) -> None:
    found = run("violations", pretend=SETTINGS[setting][0])  # of two filters the stricter answer counts
    assert set(found.values()) == {"SIGSYS"}


@linux
@users
def test_without_the_filter_the_required_walls_do_not_stand(user: str) -> None:
    """The one wall that nothing stands in for."""
    pretend = refuse(errno.ENOSYS, "seccomp")
    report = run("report", user=user, pretend=pretend)["walls"]
    with pytest.raises(standing.WallMissing, match=r"^the wall 'seccomp' .* does not stand: ENOSYS \(seccomp\)\."):
        standing.demand(report, standing.required())


@linux
def test_a_host_without_the_filter_serves_nobody_unless_it_is_told_to() -> None:
    SETTINGS["no filter"] = (refuse(errno.ENOSYS, "seccomp"), {"seccomp"})
    try:
        default, without = host("no filter", "self", None, ["process"])
    finally:
        del SETTINGS["no filter"]
    assert default["refused"].startswith("the wall 'seccomp' ")
    assert without["value"] == 42
    assert "seccomp" in without["missing"]
