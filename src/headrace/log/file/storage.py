"""Where tiered segments lie: any filesystem pyarrow can open, named by a URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from headrace.errors import InvalidSetting, StorageUnavailable

_SECRETS = {"access_key", "secret_key", "session_token", "password"}

CONNECT_TIMEOUT = 3.0
REQUEST_TIMEOUT = 10.0
"""Seconds to wait for an S3 server, and then once more, before it counts as unavailable."""


def tier_url(base: str, name: str) -> str:
    """The URL of a file under a topic's `tier`, which may be a plain folder."""
    parts = urlsplit(base)
    if not parts.scheme:
        return (Path(base).absolute() / name).as_uri()
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def check_tier(base: str) -> None:
    """Return if segments can be tiered there, as far as the URL tells."""
    try:
        parts = urlsplit(base)
    except ValueError as error:
        raise InvalidSetting(
            f"The tier is no URL: {error}",
            hint="Name a folder, or a URL such as s3://bucket/folder",
        ) from None
    if parts.password or _SECRETS & {name for name, _ in parse_qsl(parts.query)}:
        raise InvalidSetting(
            f"The tier {shown(base)} has a secret in its URL, which would end up in the catalog",
            hint="Leave it out and set it in the environment, such as AWS_SECRET_ACCESS_KEY",
        )
    try:
        _open(tier_url(base, "x"))
    except (ValueError, OSError) as error:
        raise InvalidSetting(
            f"The tier {shown(base)} cannot be used: {_clean(error, tier_url(base, 'x'))}",
            hint="Name a folder, or a URL such as s3://bucket/folder",
        ) from None


def shown(url: str) -> str:
    """The URL as it may be shown: without its query and without who logs in."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def host(url: str) -> str:
    """The server that files with URLs like this one need; empty if they need none."""
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
            _sync(Path(path))  # the local copy goes next, so this one must be there to stay
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unavailable(url, error) from error


def remove(url: str) -> None:
    """Remove a file from the storage; one that is gone already is fine."""
    try:
        filesystem, path = _open(url)
        filesystem.delete_file(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unavailable(url, error) from error


def open_file(url: str) -> pa.NativeFile:
    """A file on the storage, open for reading at random."""
    filesystem, path = _open(url)
    return filesystem.open_input_file(path)


def unavailable(url: str, error: Exception) -> StorageUnavailable:
    """The error for a storage that does not do what it should."""
    return StorageUnavailable(
        f"The storage of {shown(url)} does not answer: {_clean(error, url)}",
        hint="Check that it is up and that its credentials are set, then try again",
    )


def _clean(error: Exception, url: str) -> str:
    """What an error says, but for a URL that it may quote in full."""
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
        filesystem = _impatient(filesystem, url)
    return filesystem, path


def _impatient(filesystem: fs.FileSystem, url: str) -> fs.FileSystem:
    """The same S3, but given up on after seconds: by itself pyarrow tries a server that takes
    calls and never answers for more than a minute and a half."""
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
    except TypeError:  # an option that only a URL can have
        return filesystem
