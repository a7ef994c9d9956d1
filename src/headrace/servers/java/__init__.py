"""Java and the jars of servers and connectors: locked, downloaded once and verified.

pip cannot install jars. A lock names each by its Maven coordinates and SHA-256, and no jar that
does not match ever gets on a class path.
"""

from headrace.servers.java.home import java_home
from headrace.servers.java.jars import Fetching, Jar, class_path, jars, locked

__all__ = ["Fetching", "Jar", "class_path", "jars", "java_home", "locked"]
