"""The locks: the jars of each set, by coordinates and SHA-256. `scripts/jars` writes them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Set = Literal["kafka", "spark-kafka"]
"""`kafka` is a broker and Kafka's tools; `spark-kafka` lets Spark use topics and Avro."""

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Jar:
    """One jar: `group:artifact:version` and its checksum."""

    coordinates: str
    sha256: str

    @property
    def path(self) -> str:
        """Its path in a Maven repository and in the cache."""
        group, artifact, version = self.coordinates.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@functools.cache
def locked(name: Set) -> tuple[Jar, ...]:
    """The jars of a set, in the order of its lock."""
    lines = (FOLDER / f"{name}.lock").read_text().splitlines()
    entries = (line.split() for line in lines if line and not line.startswith("#"))
    return tuple(Jar(coordinates, digest) for coordinates, digest in entries)
