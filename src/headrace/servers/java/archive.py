"""Class archives (AppCDS): Java maps classes that an earlier Java has loaded and verified.

Spark and Kafka load thousands of classes before they do anything. An archive saves a third of the
CPU time of a start. It belongs to one Java and one class path; a Java that it does not fit ignores
it. `headrace.application.warm` makes archives, and without one everything works as before. If Spark
had to start without one, it is made in the background at the end of the process, unless
HEADRACE_ARCHIVE is `off`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from headrace.errors import NoJava
from headrace.servers.java.home import java
from headrace.servers.java.jars import cache

Program = Literal["spark", "kafka"]

_KEPT = 3
"""Archives of a program that stay. One has up to 200 MB, and each new version makes another."""


def archive(program: Program, class_path: str) -> Path:
    """The archive's file, which need not be there."""
    command = Path(java()).resolve()
    found = command.stat()
    parts = [str(command), str(found.st_size), str(found.st_mtime_ns), class_path]
    parts += (f"{jar.st_size} {jar.st_mtime_ns}" for jar in _files(class_path))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return cache().with_name("classes") / f"{program}-{digest[:16]}.jsa"


def options(program: Program, class_path: str) -> tuple[str, ...]:
    """Java's options to use the archive; none where there is none."""
    with contextlib.suppress(OSError, NoJava):
        file = archive(program, class_path)
        if file.exists():
            # Without a word where it does not fit: the console is the user's.
            return (f"-XX:SharedArchiveFile={file}", "-Xshare:auto", "-Xlog:cds*=off")
    return ()


@contextlib.contextmanager
def making(program: Program, class_path: str) -> Iterator[str | None]:
    """Keep the archive of a Java that runs, and ends, in the block with the yielded option.

    Yields None where the archive is there already, or another process is making it.
    """
    place = archive(program, class_path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock, contextlib.ExitStack() as stack:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        stack.callback(Path(lock.name).unlink, missing_ok=True)
        if place.exists():
            yield None
            return
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place.parent)), "made.jsa")
        yield f"-XX:ArchiveClassesAtExit={made}"
        if made.exists():
            os.replace(made, place)
    _prune(program, place)


def _files(class_path: str) -> Iterator[os.stat_result]:
    for part in class_path.split(os.pathsep):
        with contextlib.suppress(FileNotFoundError):
            yield Path(part.removesuffix("*")).stat()


def _prune(program: Program, newest: Path) -> None:
    """Remove all but the newest archives. A Java that has mapped one keeps it."""
    found = sorted(newest.parent.glob(f"{program}-*.jsa"), key=lambda file: file.stat().st_mtime)
    for file in found[:-_KEPT]:
        file.unlink(missing_ok=True)
