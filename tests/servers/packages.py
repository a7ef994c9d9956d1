"""Programs of servers: those of this machine, else Debian's packages, unpacked without root.

`python -m tests.servers.packages [NAME...]` fetches what is missing: `apt-get download` verifies a
package and `dpkg -x` unpacks it into a folder of the user's cache. Nothing is installed or started.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SHARED_CACHE = Path("/var/cache/headrace/servers")
"""The cache of root. Servers refuse to run as root, and no other user may enter root's home."""


@dataclass(frozen=True)
class Program:
    """A server's program and the packages that have it."""

    name: str
    packages: tuple[str, ...]
    command: str
    folders: tuple[str, ...] = ()
    """Folders that have the command, beside those on the PATH."""
    large: bool = False
    """True if it is fetched only where it is named."""


@dataclass(frozen=True)
class Found:
    """A program on this machine. `root` is the folder it was unpacked to, or `/`."""

    command: Path
    root: Path

    def environment(self) -> dict[str, str]:
        """The variables to run it with. Unpacked libraries lie where no linker looks."""
        if self.root == Path("/"):
            return dict(os.environ)
        libraries = [*self.root.glob("usr/lib/*-linux-*"), *self.root.glob("lib/*-linux-*")]
        return os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))}


PROGRAMS = {
    "postgresql": Program(
        "postgresql", ("postgresql-15",), "postgres", ("usr/lib/postgresql/15/bin",)
    ),
    "mariadb": Program("mariadb", ("mariadb-server-core",), "mariadbd", ("usr/sbin",)),
    "redis": Program("redis", ("redis-server",), "redis-server", ("usr/bin",)),
    "rabbitmq": Program(
        "rabbitmq", ("rabbitmq-server",), "rabbitmq-server", ("usr/lib/rabbitmq/bin",), large=True
    ),
    # Debian has none: `scripts/services opensearch` brings it.
    "opensearch": Program("opensearch", (), "opensearch", ("bin",)),
}


def find(name: str) -> Found | None:
    """The program of a server; None if neither this machine nor the cache has it."""
    program = PROGRAMS[name]
    for root in (Path("/"), cache() / name):
        for folder in program.folders:
            if os.access(root / folder / program.command, os.X_OK):
                return Found(root / folder / program.command, root)
    on_path = shutil.which(program.command)
    return Found(Path(on_path).resolve(), Path("/")) if on_path else None


def missing(name: str) -> str:
    """The reason why a server cannot be started, with what to do."""
    packages = " ".join(PROGRAMS[name].packages)
    if not packages:
        return f"there is no {name} here: run scripts/services {name}"
    if shutil.which("apt-get") is None:
        return f"there is no {name} here, nor apt-get to bring it: put its programs on the PATH"
    return f"there is no {name} here: run make services, or install {packages}"


def cache() -> Path:
    """The folder that packages are unpacked to."""
    if os.geteuid() == 0:
        return SHARED_CACHE
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "servers"


def fetch(name: str) -> None:
    """Unpack a program and the packages that it needs and the machine lacks."""
    place = cache() / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{name}-") as made:
        folder = Path(made, "unpacked")
        folder.mkdir()
        downloads = Path(made, "downloads")
        downloads.mkdir()
        _download(PROGRAMS[name].packages, downloads)
        for package in sorted(downloads.glob("*.deb")):
            _run("dpkg", "-x", str(package), str(folder))
        if not place.exists():
            folder.rename(place)


def _download(packages: Sequence[str], folder: Path) -> None:
    """Download packages with those they need, by apt's own lists or else by new ones.

    The machine's lists can be missing or old, and only root may renew them.
    """
    try:
        _download_by((), packages, folder)
    except subprocess.CalledProcessError:
        own = cache() / "apt"
        (own / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (own / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        options = ("-o", f"Dir::State::lists={own}/lists", "-o", f"Dir::Cache={own}/cache")
        _run("apt-get", *options, *_UNSANDBOXED, "-qq", "update")
        _download_by(options, packages, folder)


# As another user, apt could not write to our folders.
_UNSANDBOXED = ("-o", "APT::Sandbox::User=root")


def _download_by(options: Sequence[str], packages: Sequence[str], folder: Path) -> None:
    simulated = _run(
        "apt-get", *options, "--simulate", "--no-install-recommends", "install", *packages
    )
    needed = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", simulated, re.MULTILINE)
    wanted = [f"{package}={version}" for package, version in needed]
    _run("apt-get", *options, *_UNSANDBOXED, "-qq", "download", *wanted, folder=folder)


def _run(*command: str, folder: Path | None = None) -> str:
    environment = os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def main(names: Sequence[str]) -> None:
    wanted = names or [name for name, program in PROGRAMS.items() if not program.large]
    for name in wanted:
        program = PROGRAMS[name]
        if not program.packages or find(name) is not None:
            continue
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            print(f"services: {missing(name)}. Its tests are skipped")
            continue
        print(f"services: fetching {', '.join(program.packages)} into {cache() / name}")
        try:
            fetch(name)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            print(f"services: no {name}, so its tests are skipped: {said.strip()}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
