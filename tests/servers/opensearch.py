"""OpenSearch for slow tests: a node of the zip that its own integration tests run, with 512 MB.

`scripts/services opensearch` fetches it from the Maven repository that this user has configured. It
has the core alone, without modules such as reindex, and without security.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import signal
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import opensearchpy

from headrace.servers.java import ports
from headrace.servers.java.home import java
from headrace.servers.java.jars import repository
from headrace.servers.java.ports import HOST
from tests.servers import packages
from tests.servers.server import Server

_VERSION = "2.19.6"
_PATH = (
    f"org/opensearch/distribution/integ-test-zip/opensearch/{_VERSION}/opensearch-{_VERSION}.zip"
)
_SHA256 = "71d6d8b1c637f3faecda0752b184b1cc526fc6eaad59ec1408c6327bb00b9293"

_SETTINGS = {
    "discovery.type": "single-node",
    "network.host": HOST,
    # A machine with a full disk would make every index read-only.
    "cluster.routing.allocation.disk.threshold_enabled": "false",
}


class OpenSearch(Server):
    name = "opensearch"
    users = ("opensearch",)
    ending = signal.SIGKILL

    def create(self) -> None:
        config = self.program.root / "config"
        self.run(["/bin/cp", "-r", str(config), str(self.folder / "config")])
        self.run(["/bin/mkdir", str(self.data), str(self.folder / "temporary")])
        # Its log of garbage collections would be beside the program, where it may not write.
        options = self.folder / "config" / "jvm.options"
        lines = options.read_text().splitlines(keepends=True)
        options.write_text("".join(line for line in lines if "logs/" not in line))

    def command(self) -> list[str]:
        variables = {
            "OPENSEARCH_JAVA_HOME": Path(java()).resolve().parents[1],
            "OPENSEARCH_JAVA_OPTS": "-Xms512m -Xmx512m",
            "OPENSEARCH_PATH_CONF": self.folder / "config",
            "OPENSEARCH_TMPDIR": self.folder / "temporary",
        }
        settings = {
            **_SETTINGS,
            "http.port": self.port,
            "transport.port": ports.free(1)[0],
            "path.data": self.data,
            "path.logs": self.folder / "logs",
        }
        given = [f"{name}={value}" for name, value in variables.items()]
        own = [f"-E{name}={value}" for name, value in settings.items()]
        extra = [f"-E{setting}" for setting in self.settings]
        return ["/usr/bin/env", *given, str(self.program.command), *own, *extra]

    def answers(self) -> bool:
        with contextlib.closing(self.connect()) as client:
            try:
                return bool(client.cluster.health()["status"] != "red")
            except opensearchpy.exceptions.TransportError:
                return False

    def connect(self) -> Any:
        """A client of the server."""
        return opensearchpy.OpenSearch(self.url, max_retries=0)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


def fetch() -> None:
    """Unpack the server into the cache of servers, unless it is there."""
    place = packages.cache() / OpenSearch.name
    if place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    source = repository()
    request = urllib.request.Request(source.address(_PATH))
    for name, value in source.headers.items():
        request.add_unredirected_header(name, value)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".opensearch-") as made:
        archive = Path(made, "opensearch.zip")
        with urllib.request.urlopen(request, timeout=60) as answer, archive.open("wb") as file:
            shutil.copyfileobj(answer, file)
        with archive.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != _SHA256:
                raise SystemExit(f"services: {_PATH} from {source.url} has another checksum")
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(made)
        unpacked = Path(made, f"opensearch-{_VERSION}")
        for program in (unpacked / "bin").iterdir():
            program.chmod(0o755)
        Path(made).chmod(0o755)
        unpacked.rename(place)


if __name__ == "__main__":
    fetch()
