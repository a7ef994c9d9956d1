"""What runs on Java: where Java is, and the jars that are locked, fetched once and verified.

Servers and connectors come as jars, which pip cannot bring. A lock names each by its Maven
coordinates and its SHA-256, and nothing that does not match is ever put on a class path.
"""

from headrace.servers.java.home import java_home
from headrace.servers.java.jars import Fetching, class_path, jars
from headrace.servers.java.lock import Jar, locked

__all__ = ["Fetching", "Jar", "class_path", "jars", "java_home", "locked"]
