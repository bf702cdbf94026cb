"""Java's classes as Java has read them, kept between runs: Spark is there in two thirds of the time.

Java writes such an archive when it ends (`-XX:ArchiveClassesAtExit`) and maps it when it starts. It lies in
`$XDG_CACHE_HOME/trine`, takes about 160 MB, and is named after the Java and the Spark it is of; one that does not fit
after all, Java passes over. The head of the file is written last, so a file with a head is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""What Java thinks of an archive is no news, and would go to stdout, among the rows."""
CHECKED: Final = "-XX:+VerifySharedSpaces"
ARCHIVE: Final = ".jsa"
MADE: Final = ".new"
HEAD_BYTES: Final = 4
FRESH_S: Final = 3600.0
"""A file without a head that is older was left by a Java that was killed."""
UNUSED_S: Final = 30 * 86_400.0
"""An archive that nobody mapped for so long is of a Java or a Spark that is gone."""


def class_options(environment: Mapping[str, str] = os.environ) -> str:
    """Words for Java: to use the archive, or to make it when it ends; none where the cache cannot be written."""
    java = _java(environment)
    if java is None:
        return ""
    folder = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trine"
    name = f"java-{_fingerprint(java)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _adopt(folder, name)
        if (archive := _whole(folder, name)) is not None:
            os.utime(archive)
            return f'{QUIET} {CHECKED} "-XX:SharedArchiveFile={archive}"'
        _sweep(folder)
    except OSError:  # a cache that cannot be kept costs seconds, nothing else
        return ""
    return f'{QUIET} "-XX:ArchiveClassesAtExit={folder / f"{name}.{os.getpid()}{MADE}"}"'


def _java(environment: Mapping[str, str]) -> Path | None:
    """The one that PySpark starts."""
    home = environment.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    return Path(found).resolve() if found and Path(found).exists() else None


def _fingerprint(java: Path) -> str:
    import pyspark

    look = java.stat()
    words = f"{java} {look.st_size} {look.st_mtime_ns} {pyspark.__version__} {Path(pyspark.__file__).parent}"
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _adopt(folder: Path, name: str) -> None:
    """What a Java that has ended left is the archive from now on. Its size is in its name: Java looks at the sums of a
    file that is damaged, but falls over one that is too short."""
    for made in folder.glob(f"{name}.*{MADE}"):
        with contextlib.suppress(FileNotFoundError):  # somebody else was first
            with made.open("rb") as file:
                whole = any(file.read(HEAD_BYTES))
                os.fsync(file)
            look = made.stat()
            if whole:
                made.replace(folder / f"{name}-{look.st_size}{ARCHIVE}")
            elif look.st_mtime < time.time() - FRESH_S:
                made.unlink()


def _whole(folder: Path, name: str) -> Path | None:
    for archive in folder.glob(f"{name}-*{ARCHIVE}"):
        if archive.stem == f"{name}-{archive.stat().st_size}":
            return archive
        archive.unlink(missing_ok=True)
    return None


def _sweep(folder: Path) -> None:
    for old in folder.glob(f"java-*{ARCHIVE}"):
        if old.stat().st_mtime < time.time() - UNUSED_S:
            old.unlink(missing_ok=True)
