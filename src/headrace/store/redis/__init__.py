"""Views in Redis: a JSON text per row, rankings as sorted sets. It needs the extra `redis`.

A batch and its position are one MULTI, under a WATCH of the position: readers see all of it or
nothing, a lost reply is found out, and a process that fell behind writes nothing. The rows of a
version share a prefix, and one hash names the version that readers see.
"""

from headrace.store.redis.declare import Redis

__all__ = ["Redis"]
