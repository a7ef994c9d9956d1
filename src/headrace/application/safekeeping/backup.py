"""Backups: a consistent snapshot of a log with its views and checkpoints.

A backup is a folder like that of the log, plus `backup.json` with the digests of all files except
segments, whose records have checksums. A copy is written beside its target, verified, synced, and
then renamed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from headrace.application.safekeeping.check import check
from headrace.clock import SystemClock, to_datetime
from headrace.errors import DiskFull, HeadraceError, LogError, NotALog, Unsupported, UserError
from headrace.files import sync_path
from headrace.log import copy_log, folder_of_log, open_log, part_ways
from headrace.log.state import Tell
from headrace.plan.position import Positions, positions_from_json
from headrace.runtime.checkpoint import Checkpoint
from headrace.store import open_views
from headrace.store.location import checkpoint_of, database_of
from headrace.store.sqlite.stored import reading

MANIFEST = "backup.json"
_SEGMENTS = "segments"

Progress = Callable[[str], Tell]
"""Takes the name of the next task, and returns the callback for its progress."""


@dataclass(frozen=True)
class Copied:
    """A finished copy."""

    folder: Path
    commit: int
    bytes: int
    apps: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Steps, as APP/STEP, without a matching checkpoint; a run recomputes their state."""


def backup(url: str, target: Path, progress: Progress) -> Copied:
    """Copy an embedded log with its views and checkpoints, while it is in use."""
    folder = embedded(url)
    with open_log(url, create=False):  # upgrades an older format
        pass
    with open_views(f"file:{folder}") as views:
        apps = views.apps()
    left_out: list[str] = []

    with _written(target, like=folder) as new:
        here, there = f"file:{folder}", f"file:{new}"

        def copy_checkpoints() -> None:
            shutil.rmtree(new / "apps", ignore_errors=True)
            left_out[:] = [name for app in apps for name in _copy_checkpoints(here, there, app)]

        commit = copy_log(
            folder,
            new,
            beside={database_of(here, app): database_of(there, app) for app in apps},
            then=copy_checkpoints,
            tell=progress("copying"),
        )
        _verify(new, progress)
        manifest = {
            "made": to_datetime(SystemClock().now()).isoformat(),
            "commit": commit,
            "apps": apps,
            "files": _digests(new),
        }
        (new / MANIFEST).write_text(json.dumps(manifest, indent=1))
        size = _size(new)
    return Copied(target, commit, size, tuple(apps), tuple(left_out))


def restore(source: Path, url: str, progress: Progress) -> Copied:
    """Create a log from a backup, in a folder that is missing or empty."""
    folder = embedded(url)
    try:
        manifest = json.loads((source / MANIFEST).read_text())
    except FileNotFoundError:
        raise NotALog(
            f"There is no backup in {source}", hint="Name a folder that headrace backup wrote"
        ) from None
    except ValueError as error:
        raise LogError(f"{source / MANIFEST} is damaged: {error}", hint=_ANOTHER) from None
    meant: dict[str, str] = manifest["files"]
    segments = [path for path in _files(source) if path.parent.name == _SEGMENTS]
    paths = [*(source / name for name in meant if (source / name).exists()), *segments]
    with _written(folder, like=source) as new:
        tell, done, total = progress("copying"), 0, sum(path.stat().st_size for path in paths)
        for path in paths:
            place = new / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            tell(done := done + path.stat().st_size, total)
        found = _digests(new)
        if wrong := sorted(name for name in meant if found.get(name) != meant[name]):
            raise LogError(f"The backup in {source} is damaged: {', '.join(wrong)}", hint=_ANOTHER)
        _verify(new, progress)
        part_ways(new)
    return Copied(folder, manifest["commit"], total, tuple(manifest["apps"]))


_ANOTHER = "Nothing was restored. Use another backup"


def embedded(url: str) -> Path:
    """The folder of an embedded log. Raises for any other log."""
    folder = folder_of_log(url)
    if folder is None:
        raise Unsupported(
            "Only a log in a folder can be copied and checked",
            hint="Kafka's own tools mirror topics. Views can be recomputed from them: "
            "headrace run --fresh",
            capability="backup",
        )
    return folder.absolute()


def _copy_checkpoints(here: str, there: str, app: str) -> list[str]:
    """Copy the checkpoints of an application. Return the steps for which that failed."""
    with reading(database_of(there, app)) as db:
        steps = list(db.execute("SELECT name, begun, reached FROM _headrace_step"))
    left_out = []
    for name, begun, reached in steps:
        source, target = (checkpoint_of(url, app, str(name)) for url in (here, there))
        if begun == reached or not source.exists():
            continue  # it has read nothing, or needs no Spark checkpoint
        if not copy_checkpoint(source, target, positions_from_json(str(reached))):
            left_out.append(f"{app}/{name}")
    return left_out


def _verify(folder: Path, progress: Progress) -> None:
    """Read everything back."""
    flaws = check(folder, progress("checking"))
    for left in (*folder.rglob("*.db-wal"), *folder.rglob("*.db-shm")):
        left.unlink()  # left behind by SQLite's readers
    if damage := [flaw for flaw in flaws if not flaw.harmless]:
        raise LogError(
            f"The copy is damaged: {damage[0].what}: {damage[0].problem}",
            hint="'headrace log check' says whether the log itself is damaged",
        )


@contextlib.contextmanager
def _written(target: Path, *, like: Path) -> Iterator[Path]:
    """A new folder that becomes `target` if the block succeeds.

    It gets the permissions of the folder `like`.
    """
    target = target.absolute()
    if target.is_symlink() or target.is_file() or (target.exists() and any(target.iterdir())):
        raise UserError(
            f"{target} exists and is not empty",
            hint="Name another folder, or move this one away",
        )
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        new.mkdir(0o700)
        yield new
        new.chmod(stat.S_IMODE(like.stat().st_mode))
        for path in (*_files(new), *(p for p in new.rglob("*") if p.is_dir()), new):
            sync_path(path)
        new.rename(target)
        sync_path(target.parent)
    except HeadraceError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"No space left for {target}", hint="Nothing was written") from error
        raise LogError(f"{error.filename or target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _digests(folder: Path) -> dict[str, str]:
    """Digests by path of all files except segments, whose records have checksums."""
    found = {}
    for path in _files(folder):
        name = path.relative_to(folder)
        if name.parts[0] != _SEGMENTS:
            with path.open("rb") as file:
                digest = xxhash.xxh3_64()
                while piece := file.read(1 << 20):
                    digest.update(piece)
            found[str(name)] = digest.hexdigest()
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


_VERSION = re.compile(r"(\d+)([._].*)?")


def copy_checkpoint(source: Path, target: Path, reached: Positions) -> bool:
    """True if a checkpoint that matches the stored results was copied, while Spark may run.

    Spark writes a batch's end into `offsets` before the batch, new versions of its state during it,
    and its number into `commits` after it. Files do not change, and Spark keeps those of the last
    hundred batches. So this copies the checkpoint of the batch whose results were stored last. In
    the copy that batch is not committed: Spark runs it again for its own state, and the views,
    which already have it, store nothing.
    """
    batch = _last_batch(Checkpoint(source), reached)
    if batch is None:
        return False
    for path in source.rglob("*"):
        inside = path.relative_to(source)
        if path.is_file() and not path.name.startswith(".") and _wanted(inside, batch):
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # old files, which Spark deletes
                shutil.copyfile(path, target / inside)
    copy = Checkpoint(target)
    stateful = any(target.glob("state/*/[0-9]*"))
    if copy.last_done() == batch - 1 and (not batch or not stateful or copy.has_state(batch)):
        return True
    shutil.rmtree(target)
    return False


def _last_batch(checkpoint: Checkpoint, reached: Positions) -> int | None:
    """The number of the batch that the stored results end with."""
    for number in reversed(checkpoint.planned()):
        if checkpoint.end_of(number) == reached:
            return number
    return None


def _wanted(inside: Path, batch: int) -> bool:
    """True if a file is older than a batch, or describes the batch."""
    found = _VERSION.fullmatch(inside.name)
    last = {"offsets": batch, "commits": batch - 1, "state": batch}.get(inside.parts[0])
    # Versions of the state are named 7.delta or 7_id.zip; a bare number is something else there.
    if last is None or found is None or (inside.parts[0] == "state" and not found[2]):
        return True
    return int(found[1]) <= last
