"""Settings of a studio."""

from __future__ import annotations

import ipaddress
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import InvalidSetting
from headrace.eventsourcing import Domain
from headrace.log import DEFAULT_LOG
from headrace.pipeline.app import App

PORT = 8787
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class StudioSettings:
    """The log that a studio shows, the applications it may start, and who may use it.

    `apps` are names such as `pipelines.pageviews:app`: no others can be started from a page. Every
    page needs the `token` of the printed address. With `read_only`, nothing can be changed.
    """

    log: str = DEFAULT_LOG
    apps: tuple[str, ...] = ()
    host: str = LOOPBACK
    port: int = PORT
    read_only: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    declared: Mapping[str, App] = field(default_factory=dict, compare=False, repr=False)
    """The declarations of `apps`, by the name of the application, in the same order."""
    domains: Mapping[str, Domain] = field(default_factory=dict, compare=False, repr=False)
    """The domains of events that the modules of `apps` declare, by name."""
    program: tuple[str, ...] = (sys.executable, "-m", "headrace.cli.main")
    """The command line of headrace, which applications are started with."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise InvalidSetting(
                f"There is no port {self.port}", hint="Use a number from 0 to 65535"
            )
        if self.declared and len(self.declared) != len(self.apps):
            raise InvalidSetting(
                f"Two of {', '.join(self.apps)} have the same name",
                hint="Name each application once",
            )

    @property
    def references(self) -> dict[str, str]:
        """The applications that it may start, by name: what a command calls each."""
        return dict(zip(self.declared, self.apps, strict=True)) if self.declared else {}

    @property
    def on_loopback(self) -> bool:
        """True if only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def origin(self) -> str:
        """The address of the studio, without its token."""
        return f"http://{_in_url(self.host)}:{self.port}"

    @property
    def address(self) -> str:
        """The address to open in a browser."""
        return f"{self.origin}/?token={self.token}"

    @property
    def hosts(self) -> frozenset[str]:
        """The Host headers that it answers to: a name that resolves to it is not enough."""
        names = {self.host}
        if self.on_loopback:
            names |= {"127.0.0.1", "localhost", "::1"}
        return frozenset(f"{_in_url(name)}:{self.port}" for name in names)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
