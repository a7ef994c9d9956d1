"""The order of tests, and their distribution over the processes of `make test`.

A process takes one module after the other, so that what a module shares is made once. Tests of the
log on Kafka mostly wait, each with a broker of its process: two processes take them, and begin with
them, while the others compute. Modules that take long come before those of a few seconds, so that
all processes end at about the same time.
"""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling

_ORDER = ("soak", "recovery", "upgrade", "integration", "property", "studio", "reference", "docs")
"""Folders of tests that come before the others."""

_MEMBERS = ("/test_groups.py", "/test_delivery.py")
"""Modules with half of the waiting."""


class ByModule(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out modules in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if not waits(nodeid):
            return module
        return "members on Kafka" if module.endswith(_MEMBERS) else "Kafka"


def waits(nodeid: str) -> bool:
    """True for a test of the log on Kafka."""
    return nodeid.startswith("tests/conformance/") and "[kafka" in nodeid


def rank(nodeid: str) -> int:
    """The place of a test in the order."""
    if waits(nodeid):
        return -1
    _, folder, *_ = nodeid.split("/")
    return _ORDER.index(folder) if folder in _ORDER else len(_ORDER)
