"""RabbitMQ for tests and benchmarks: one node with the user `guest`, without plugins."""

from __future__ import annotations

import os
import signal

import pika

from headrace.servers.java import ports
from headrace.servers.java.ports import HOST
from tests.servers.server import Server


class RabbitMQ(Server):
    name = "rabbitmq"
    users = ("rabbitmq",)
    ending = signal.SIGKILL

    def create(self) -> None:
        self.run(["/bin/mkdir", str(self.data)])
        # Erlang's own script of this name looks for Erlang in /usr/lib, wherever it was unpacked.
        (self.folder / "erl").write_text('#!/bin/sh\nexec "$BINDIR/erlexec" "$@"\n')
        (self.folder / "erl").chmod(0o755)

    def command(self) -> list[str]:
        erlang = self.program.root / "usr/lib/erlang"
        (machine,) = erlang.glob("erts-*/bin")
        mapper, distribution = ports.free(2)
        variables = {
            "PATH": os.pathsep.join((str(self.folder), str(machine), os.environ["PATH"])),
            "HOME": self.folder,
            "ROOTDIR": erlang,
            "BINDIR": machine,
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": mapper,
            # Its script makes way for the node only if that takes input.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_START_ARGS": "-noinput",
            "RABBITMQ_NODENAME": "headrace@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": distribution,
            "RABBITMQ_MNESIA_BASE": self.data,
            "RABBITMQ_LOG_BASE": self.folder / "logs",
            "RABBITMQ_LOGS": "-",
            "ERL_CRASH_DUMP": self.folder / "erlang.dump",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.folder / "plugins",
            "RABBITMQ_CONFIG_FILE": self.folder / "settings",
        }
        lines = ("disk_free_limit.absolute = 50MB", *self.settings)
        (self.folder / "settings.conf").write_text("\n".join(lines) + "\n")
        given = [f"{name}={value}" for name, value in variables.items()]
        # Erlang's port mapper would outlive the node, so it ends with its parent.
        both = f"setpriv --pdeathsig KILL epmd & exec {self.program.command}"
        return ["/usr/bin/env", *given, "/bin/sh", "-c", both]

    def answers(self) -> bool:
        try:
            self.connect().close()
        except pika.exceptions.AMQPError:
            return False
        return True

    def connect(self) -> pika.BlockingConnection:
        """A connection to the node."""
        return pika.BlockingConnection(pika.URLParameters(self.url))

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/%2F"
