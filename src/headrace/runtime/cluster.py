"""The workers of a cluster: their hosts, and the modules that they need.

Workers have Python and headrace's dependencies. The driver sends them headrace itself and the
user's own modules, so that all run the same version.
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
_PROBES = 8
"""Tasks for each host, so that every host gets one."""


def check_master(master: str) -> None:
    """Raise unless it is the address of a standalone Spark cluster."""
    if not _MASTER.fullmatch(master):
        raise InvalidSetting(
            f"{master!r} is not the address of a Spark cluster",
            hint="Write spark://HOST:PORT, as the master's page shows it\n"
            "Without --master, Spark runs in this process, on --cores cores",
        )


def on_this_machine(master: str) -> bool:
    """True if the master accepts only workers of this machine."""
    host = urlsplit(master.partition(",")[0]).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_cluster(spark: SparkSession) -> bool:
    return (spark.sparkContext.master or "").startswith("spark:")


def ship(spark: SparkSession) -> None:
    """Send headrace and the user's own modules to the workers."""
    # Spark removes the folder when it ends.
    file = archive_of_modules(temporary_folder(spark))
    if file.name not in {Path(name).name for name in spark.sparkContext.listFiles}:
        spark.sparkContext.addPyFile(str(file))


def require_local(spark: SparkSession, url: str) -> None:
    """Raise if the log is in a folder and workers are on other machines."""
    if url.startswith(_LOCAL_LOG) and (others := _elsewhere(spark)):
        raise Unsupported(
            f"The log {url} is in a folder of this machine, and Spark has workers on "
            f"{', '.join(others)}",
            hint="Use a log that all of them reach, such as kafka://HOST:PORT",
            capability="remote workers",
        )


def require_shared(spark: SparkSession, folder: Path) -> None:
    """Raise unless all workers see the folder of Spark's state."""
    if not (others := _elsewhere(spark)):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="seen-") as file:
        tasks = len(others) * _PROBES
        seen = spark.sparkContext.parallelize([file.name] * tasks, tasks).map(os.path.exists)
        if all(seen.collect()):
            return
    raise Unsupported(
        f"Spark keeps its state in {folder}, which is a folder of this machine, and has workers on "
        f"{', '.join(others)}",
        hint="Set HEADRACE_STATE to a folder that all machines share, under the same path",
        capability="remote workers",
    )


def _elsewhere(spark: SparkSession) -> list[str]:
    """The hosts of workers on other machines."""
    if not is_cluster(spark):
        return []
    spark.sparkContext.parallelize([0], 1).count()  # executors start with the first job
    return sorted(host for host in executor_hosts(spark) if not is_ours(host))


def is_ours(host: str) -> bool:
    """True if this machine has the address: only then can a socket be bound to it."""
    try:
        family, kind, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def archive_of_modules(folder: Path) -> Path:
    """Make an archive of the modules to send, named by its contents."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "modules.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(_files()):
            # Without the times of the files, the same files make the same archive.
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    digest = hashlib.sha256(made.read_bytes()).hexdigest()[:16]
    return made.rename(folder / f"headrace-{digest}.zip")


def _files() -> Iterator[tuple[str, Path]]:
    """The files to send: the name in the archive, and the path."""
    yield from _package(Path(__file__).parents[1])
    # Spark pickles what the main script itself defines.
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
    """True if a module is the user's own: neither Python's nor installed."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [*map(sysconfig.get_path, names), site.getusersitepackages()]
    return path.suffix in ("", ".py") and not any(
        path.resolve().is_relative_to(Path(folder).resolve()) for folder in installed
    )
