"""The archive of Java's classes: made by a real Java, mapped by the next."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from trine.spark.classes import FRESH_S, UNUSED_S, class_options

JAVA = "java"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    home = os.environ.get("JAVA_HOME")
    found = {"XDG_CACHE_HOME": str(tmp_path / "a cache"), "PATH": os.environ["PATH"]}
    return found | ({"JAVA_HOME": home} if home else {})


def started(options: str, *words: str) -> subprocess.CompletedProcess[str]:
    java = Path(os.environ["JAVA_HOME"], "bin", JAVA) if "JAVA_HOME" in os.environ else JAVA
    return subprocess.run(
        [java, *shlex.split(options), *words, "-version"], capture_output=True, text=True, check=False
    )


def test_one_run_makes_it_and_the_next_maps_it(environment: dict[str, str]) -> None:
    making = class_options(environment)
    assert "ArchiveClassesAtExit" in making
    assert started(making).returncode == 0
    using = class_options(environment)
    assert "SharedArchiveFile" in using
    mapped = started(using, "-Xshare:on")  # it ends if the archive cannot be mapped
    assert (mapped.returncode, mapped.stdout) == (0, "")
    (archive,) = Path(environment["XDG_CACHE_HOME"], "trine").iterdir()
    assert archive.suffix == ".jsa"


def test_one_that_is_not_whole_is_not_used_and_goes_when_it_is_old(environment: dict[str, str]) -> None:
    made = Path(shlex.split(class_options(environment))[-1].partition("=")[2])
    made.write_bytes(bytes(100))  # its head is written last
    assert "ArchiveClassesAtExit" in class_options(environment)
    assert made.exists()
    old = made.stat().st_mtime - FRESH_S - 1
    os.utime(made, (old, old))
    assert "ArchiveClassesAtExit" in class_options(environment)
    assert not made.exists()


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_one_costs_the_gain_and_nothing_else(environment: dict[str, str], damage: str) -> None:
    assert started(class_options(environment)).returncode == 0
    assert "SharedArchiveFile" in class_options(environment)
    (archive,) = Path(environment["XDG_CACHE_HOME"], "trine").iterdir()
    archive.chmod(0o644)
    data = bytearray(archive.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = bytes(255 - byte for byte in data[middle : middle + 4096])
    archive.write_bytes(data if damage == "flipped" else data[:5000])
    using = class_options(environment)
    assert ("SharedArchiveFile" in using) == (damage == "flipped")
    found = started(using)
    assert (found.returncode, found.stdout) == (0, "")


def test_archives_nobody_uses_are_swept(environment: dict[str, str]) -> None:
    class_options(environment)
    other = Path(environment["XDG_CACHE_HOME"], "trine", "java-0123456789abcdef.jsa")
    other.write_bytes(b"x")
    class_options(environment)
    assert other.exists()
    old = other.stat().st_mtime - UNUSED_S - 1
    os.utime(other, (old, old))
    class_options(environment)
    assert not other.exists()


def test_without_java_or_a_cache_nothing_is_asked_for(environment: dict[str, str], tmp_path: Path) -> None:
    assert class_options({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}) == ""
    (tmp_path / "file").touch()
    if shutil.which(JAVA) or "JAVA_HOME" in environment:
        assert class_options(environment | {"XDG_CACHE_HOME": str(tmp_path / "file")}) == ""
