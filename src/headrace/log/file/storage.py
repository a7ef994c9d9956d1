"""Segment files: on the local disk, or tiered to any filesystem that pyarrow can open by URL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from headrace.errors import InvalidSetting, StorageUnavailable
from headrace.log.file.disk import Disk, ReadInto

SEGMENTS = "segments"

_SECRETS = {"access_key", "secret_key", "session_token", "password"}

CONNECT_TIMEOUT = 3.0
REQUEST_TIMEOUT = 10.0
"""Timeouts for an S3 server, in seconds. After two attempts it counts as unavailable."""


@lru_cache(maxsize=1024)
def segment_path(folder: Path, topic: int, partition: int, segment: int) -> Path:
    """The path of a segment; made of numbers only, so no name can lead out of the folder."""
    return folder / SEGMENTS / f"{topic:06d}-{partition:05d}-{segment:010d}.arrows"


class SegmentFile(Protocol):
    """A segment to read from."""

    def reading(self) -> contextlib.AbstractContextManager[ReadInto]:
        """The open file, for any number of reads."""


@dataclass(frozen=True)
class LocalSegment:
    """A segment on this machine's disk."""

    disk: Disk
    path: Path

    def reading(self) -> contextlib.AbstractContextManager[ReadInto]:
        return self.disk.reading(self.path)


@dataclass(frozen=True)
class TieredSegment:
    """A segment on another filesystem."""

    disk: Disk
    url: str

    @contextlib.contextmanager
    def reading(self) -> Iterator[ReadInto]:
        with self.disk.lent(self.url, lambda: open_file(self.url)) as file:

            def read_into(target: memoryview, position: int) -> int:
                file.seek(position)
                return int(file.readinto(target))

            yield read_into


def segment_file(disk: Disk, path: Path, location: str | None) -> SegmentFile:
    """The segment at its location, or at its local path if it was not tiered."""
    return LocalSegment(disk, path) if location is None else TieredSegment(disk, location)


def tier_url(base: str, name: str) -> str:
    """The URL of a file under a topic's `tier`, which may be a plain folder."""
    parts = urlsplit(base)
    if not parts.scheme:
        return (Path(base).absolute() / name).as_uri()
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def check_tier(base: str) -> None:
    """Check that a URL is valid for tiering. This does not connect to it."""
    try:
        parts = urlsplit(base)
    except ValueError as error:
        raise InvalidSetting(
            f"The tier is not a valid URL: {error}",
            hint="Name a folder, or a URL such as s3://bucket/folder",
        ) from None
    if parts.password or _SECRETS & {name for name, _ in parse_qsl(parts.query)}:
        raise InvalidSetting(
            f"The URL of the tier {shown(base)} contains a secret, which would be stored in the "
            "catalog",
            hint="Remove it and set it in the environment, such as AWS_SECRET_ACCESS_KEY",
        )
    try:
        _open(tier_url(base, "x"))
    except (ValueError, OSError) as error:
        raise InvalidSetting(
            f"The tier {shown(base)} cannot be used: {_clean(error, tier_url(base, 'x'))}",
            hint="Name a folder, or a URL such as s3://bucket/folder",
        ) from None


def shown(url: str) -> str:
    """The URL without query and credentials, safe to show."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def host(url: str) -> str:
    """The server of a URL, with the URL's options; empty if it needs none."""
    parts = urlsplit(url)
    return f"{parts.netloc}?{parts.query}" if parts.netloc else ""


def store(local: Path, url: str) -> None:
    """Copy a local file to the storage."""
    try:
        filesystem, path = _open(url)
        if isinstance(filesystem, fs.LocalFileSystem):
            filesystem.create_dir(path.rpartition("/")[0])
        with local.open("rb") as source, filesystem.open_output_stream(path) as target:
            while piece := source.read(1 << 20):
                target.write(piece)
        if isinstance(filesystem, fs.LocalFileSystem):
            _sync(Path(path))  # the original is deleted next, so this copy must be durable
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unavailable(url, error) from error


def remove(url: str) -> None:
    """Remove a file from the storage, if it exists."""
    try:
        filesystem, path = _open(url)
        filesystem.delete_file(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unavailable(url, error) from error


def open_file(url: str) -> pa.NativeFile:
    """Open a file on the storage for random access."""
    filesystem, path = _open(url)
    return filesystem.open_input_file(path)


def unavailable(url: str, error: Exception) -> StorageUnavailable:
    """The error for a storage that fails."""
    return StorageUnavailable(
        f"The storage of {shown(url)} does not answer: {_clean(error, url)}",
        hint="Check that it is up and that its credentials are set, then try again",
    )


def _clean(error: Exception, url: str) -> str:
    """The text of an error, with the URL that it may quote shortened as in `shown`."""
    return str(error).replace(url, shown(url))


def _sync(path: Path) -> None:
    for place in (path, path.parent, path.parent.parent):
        file = os.open(place, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _open(url: str) -> tuple[fs.FileSystem, str]:
    filesystem, path = fs.FileSystem.from_uri(url)
    if filesystem.type_name == "s3":
        filesystem = _with_timeouts(filesystem, url)
    return filesystem, path


def _with_timeouts(filesystem: fs.FileSystem, url: str) -> fs.FileSystem:
    """The same S3 filesystem with short timeouts: by default pyarrow waits more than 90 seconds
    for a server that accepts connections and never answers."""
    options: dict[str, Any] = {
        name: value == "true" if value in ("true", "false") else value
        for name, value in parse_qsl(urlsplit(url).query)
    }
    options["region"] = filesystem.region
    try:
        return fs.S3FileSystem(
            **options,
            connect_timeout=CONNECT_TIMEOUT,
            request_timeout=REQUEST_TIMEOUT,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=2),
        )
    except TypeError:  # an option that only works in a URL
        return filesystem
