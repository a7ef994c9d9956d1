"""A cluster's workers: what they need of us, and where they are.

Workers have Python and what headrace depends on. headrace itself and the user's own modules are
sent to them, so that they run what the driver runs, and not what was installed there last year.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import site
import socket
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from headrace.errors import InvalidSetting, Unsupported
from headrace.runtime.spark_internals import executor_hosts, temporary_folder

_MASTER = re.compile(r"spark://[^:/,\s]+:\d+(,[^:/,\s]+:\d+)*")
_LOCAL_LOG = "file:"
_ASKED = 8
"""Tasks for each host, so that none is left out."""


def check_master(master: str) -> None:
    """Return if it is the address of a cluster that headrace can run on."""
    if not _MASTER.fullmatch(master):
        raise InvalidSetting(
            f"{master!r} is not the address of a Spark cluster",
            hint="Write spark://HOST:PORT, as the master's page has it\n"
            "Without --master, Spark runs in this process, on as many cores as --cores says",
        )


def on_this_machine(master: str) -> bool:
    """Whether the master only listens to workers of this machine."""
    host = urlsplit(master.partition(",")[0]).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_cluster(spark: SparkSession) -> bool:
    return (spark.sparkContext.master or "").startswith("spark:")


def ship(spark: SparkSession) -> None:
    """Send headrace and the modules of the user's own to the workers."""
    # Spark serves the file for as long as it runs, and then removes the folder.
    file = archive_of_modules(temporary_folder(spark))
    if file.name not in {Path(name).name for name in spark.sparkContext.listFiles}:
        spark.sparkContext.addPyFile(str(file))


def require_local(spark: SparkSession, url: str) -> None:
    """Return if all workers can get at a log: one in a folder is only on this machine."""
    if url.startswith(_LOCAL_LOG) and (others := _elsewhere(spark)):
        raise Unsupported(
            f"The log {url} is in a folder of this machine, and Spark has workers on "
            f"{', '.join(others)}",
            hint="Use a log that they all reach, such as kafka://HOST:PORT",
            capability="remote workers",
        )


def require_shared(spark: SparkSession, folder: Path) -> None:
    """Return if all workers see a folder, where they are to keep what they have to remember."""
    if not (others := _elsewhere(spark)):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="seen-") as file:
        asked = len(others) * _ASKED
        seen = spark.sparkContext.parallelize([file.name] * asked, asked).map(os.path.exists)
        if all(seen.collect()):
            return
    raise Unsupported(
        f"Spark keeps its state in {folder}, which is a folder of this machine, and has workers on "
        f"{', '.join(others)}",
        hint="Set HEADRACE_STATE to a folder that all machines share, under the same path",
        capability="remote workers",
    )


def _elsewhere(spark: SparkSession) -> list[str]:
    """The hosts of a cluster's workers that are not on this machine."""
    if not is_cluster(spark):
        return []
    spark.sparkContext.parallelize([0], 1).count()  # now there is a worker
    return sorted(host for host in executor_hosts(spark) if not is_ours(host))


def is_ours(host: str) -> bool:
    """Whether this machine has the address: only then can a socket be bound to it."""
    try:
        family, kind, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def archive_of_modules(folder: Path) -> Path:
    """An archive of all that is to be sent, named by what is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "modules.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(_files()):
            # The same files make the same archive, whenever they were written.
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    digest = hashlib.sha256(made.read_bytes()).hexdigest()[:16]
    return made.rename(folder / f"headrace-{digest}.zip")


def _files() -> Iterator[tuple[str, Path]]:
    """What is to be sent: by its name in the archive, and where it is."""
    yield from _package(Path(__file__).parents[1])
    # What the main script itself defines is pickled as it is, by Spark.
    tops = {name.partition(".")[0] for name in sys.modules} - {"headrace", "__main__"}
    for top in tops & sys.modules.keys():
        module = sys.modules[top]
        if folders := getattr(module, "__path__", None):
            for folder in map(Path, folders):
                if _is_own(folder):
                    yield from _package(folder)
        elif (file := getattr(module, "__file__", None)) and _is_own(Path(file)):
            yield Path(file).name, Path(file)


def _package(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*.py"):
        yield str(path.relative_to(folder.parent)), path


def _is_own(path: Path) -> bool:
    """Whether a module is the user's: neither Python's nor installed."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [*map(sysconfig.get_path, names), site.getusersitepackages()]
    return path.suffix in ("", ".py") and not any(
        path.resolve().is_relative_to(Path(folder).resolve()) for folder in installed
    )
