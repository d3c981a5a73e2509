"""The optional wrapper: bubblewrap starts the zygote in a file tree with an interpreter, our code, and nothing else.

One layer more behind landlock and the filter: were both to fail, there would still be no file of the host's to open.
No pid namespace, as everywhere here (`jail.py`): the host needs the workers' process ids. Host side; pure but `find`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Final

from sandbox.errors import EngineUnavailable

_IMPORTED: Final = ("msgspec", "py_mini_racer", "tree_sitter", "tree_sitter_javascript", "tree_sitter_typescript")
_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_DEVICES: Final = ("/dev/null", "/dev/urandom")  # for the standard streams, and what V8 seeds from
# What the zygote gives up itself, in its own order; without them it could not stop to be root.
_OF_ROOT: Final = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_SYS_ADMIN")


def find() -> str:
    """The path of `bwrap`.

    Raises:
        EngineUnavailable: It is not installed.
    """
    found = shutil.which("bwrap")
    if found is None:
        raise EngineUnavailable(
            "bubblewrap=True needs the program bwrap, which is not on PATH: install the package `bubblewrap`, "
            "or leave bubblewrap out and go without its file tree"
        )
    return found


def child(wrapper: int) -> int:
    """A pidfd of what a running `bwrap` has started. `EngineUnavailable`: the kernel does not say."""
    try:
        [pid] = Path(f"/proc/{wrapper}/task/{wrapper}/children").read_text("ascii").split()
        return os.pidfd_open(int(pid))
    except (OSError, ValueError) as error:
        raise EngineUnavailable(f"what bubblewrap has started cannot be found ({error}): go without it") from None


def wrapped(command: list[str], *, bwrap: str, root: bool) -> list[str]:
    """The command, to be started by bubblewrap.

    Args:
        command: Its first word is this interpreter; the one behind a virtual environment takes its place.
        bwrap: What `find` returned.
        root: Whether the host is root, which keeps what it takes to become nobody.
    """
    words = [bwrap, "--die-with-parent", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if root:
        words += [word for capability in _OF_ROOT for word in ("--cap-add", capability)]
    interpreter = os.path.realpath(command[0])
    paths = {*read(), Path(interpreter)}
    outer = sorted(path for path in paths if not paths.intersection(path.parents))
    folders = {parent for path in (*outer, *map(Path, _DEVICES)) for parent in path.parents}
    for folder in sorted(folders)[1:]:  # bubblewrap makes what is missing itself, but for nobody to enter
        words += ["--dir", str(folder)]
    for path in outer:
        words += ["--ro-bind", str(path), str(path)]
    for device in _DEVICES:
        words += ["--dev-bind", device, device]
    return [*words, "--bind", "/proc", "/proc", "--chdir", "/", "--", interpreter, *command[1:]]


def read() -> set[Path]:
    """What of the host's files the zygote needs: libraries, the standard library, the packages that it imports, us."""
    paths = {Path(path) for path in (*_LIBRARIES, f"{sys.base_prefix}/lib") if Path(path).is_dir()}
    paths.add(Path(__file__).resolve().parent)
    for name in _IMPORTED:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            paths.add(Path(spec.origin).parent)
    return paths
