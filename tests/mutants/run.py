"""Take each defence away, one at a time, and see whether its tests notice: `python tests/mutants/run.py`.

Works on copies of the tree; the checkout is not touched. Exit status 1 where a mutant is unnoticed or does not apply.
"""

from __future__ import annotations

import argparse
import collections
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.mutants.table import ATTACK, ROOT, Mutant, load, wrong

TREES: Final = ("sandbox", "bridge", "tests", "examples")
FILES: Final = ("pyproject.toml", "README.md", "SECURITY.md")
DEADLINE_S: Final = 600.0  # of one mutant; one that hangs is noticed, but says so
UNUSABLE: Final = (4, 5)  # pytest's words for tests that are not there
PYTEST: Final = ("-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider")


def copied(into: Path) -> None:
    """A copy of what tests need, which other users may read: some of them start as nobody."""
    into.chmod(0o755)
    for tree in TREES:
        shutil.copytree(ROOT / tree, into / tree, symlinks=True)
    for name in FILES:
        shutil.copy2(ROOT / name, into / name)


def commands(tests: Sequence[str]) -> list[list[str]]:
    """What runs them, programs of the corpus first."""
    attacks = [test.removeprefix(ATTACK) for test in tests if test.startswith(ATTACK)]
    others = [test for test in tests if not test.startswith(ATTACK)]
    found = [[sys.executable, "-m", "tests.mutants.assault", *attacks]] if attacks else []
    return [*found, *([[sys.executable, *PYTEST, *others]] if others else [])]


def noticed(tree: Path, tests: Sequence[str]) -> str:
    """The last words of the first command that fails; empty where none does."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    for words in commands(tests):
        try:
            ended = subprocess.run(
                words,
                cwd=tree,
                env=environment,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=DEADLINE_S,
            )
        except subprocess.TimeoutExpired:
            return f"not done after {DEADLINE_S:g} s"
        if ended.returncode in UNUSABLE and words[2] == "pytest":
            raise LookupError(f"there are no such tests: {', '.join(tests)}")
        if ended.returncode:
            lines = ended.stdout.decode("utf-8", "replace").strip().splitlines() or ["said nothing"]
            said = [line for line in lines if line.startswith(("FAILED ", "ERROR "))] or lines
            return said[-1][:200]
    return ""


def played(mutant: Mutant) -> tuple[str, str]:
    """Whether it is noticed, in a word, and what noticed it."""
    if reason := wrong(mutant):
        return "does not apply", reason
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        copied(tree)
        path = tree / mutant.file
        text = path.read_text("utf-8")
        path.unlink()  # a new file: what Python compiled of the old one is then out of date for certain
        path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        try:
            said = noticed(tree, mutant.tests)
        except LookupError as error:
            return "does not apply", str(error)
    return ("noticed", said) if said else ("unnoticed", f"all pass: {', '.join(mutant.tests)}")


def untouched(mutants: Sequence[Mutant]) -> str:
    """What fails though nothing was taken away: then no mutant could be told from none. Empty: nothing does."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copied(Path(folder))
        return noticed(Path(folder), tests)


def main() -> None:
    """Play them and say of each what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="play mutants of this name only")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once (default 2)")
    parser.add_argument("--unchecked", action="store_true", help="do not first see whether the tests pass as they are")
    given = parser.parse_args()
    mutants = [mutant for mutant in load() if not given.only or mutant.name in given.only]
    if missing := set(given.only) - {mutant.name for mutant in mutants}:
        raise SystemExit(f"there is no mutant {', '.join(sorted(missing))}")
    if not given.unchecked and (failed := untouched(mutants)):
        raise SystemExit(f"without any mutant, this fails already: {failed}")
    began, counts = time.monotonic(), collections.Counter[str]()
    with ThreadPoolExecutor(given.jobs) as pool:
        for mutant, (word, said) in zip(mutants, pool.map(played, mutants), strict=True):
            counts[word] += 1
            print(f"{word:14} {mutant.name}: {said}", flush=True)
    told = ", ".join(f"{counts[word]} {word}" for word in ("noticed", "unnoticed", "does not apply"))
    print(f"{len(mutants)} mutants in {time.monotonic() - began:.0f} s: {told}")
    if counts["noticed"] != len(mutants):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
