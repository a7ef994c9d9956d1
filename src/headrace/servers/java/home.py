"""The Java to use: JAVA_HOME, the PATH, or the one that `make setup` installed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from headrace.errors import NoJava

BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for short runs: Java compiles less, so it starts in half the time."""


def java_home() -> Path | None:
    """The value for JAVA_HOME, or None if `java` is on the PATH."""
    if home := os.environ.get("JAVA_HOME"):
        return Path(home)
    if shutil.which("java"):
        return None
    own = Path(sys.prefix, "java")
    if not (own / "bin" / "java").exists():
        raise NoJava(
            "There is no Java, which Spark and Kafka need",
            hint="Install Java 17 or newer and set JAVA_HOME, or run make setup to get one",
        )
    return own


def java() -> str:
    """The command that starts Java."""
    home = java_home()
    command = shutil.which("java") if home is None else str(home / "bin" / "java")
    if command is None or not os.access(command, os.X_OK):
        raise NoJava(
            f"There is no Java at {command}",
            hint="Set JAVA_HOME to the folder of Java 17 or newer, the one that contains bin/java",
        )
    return command
