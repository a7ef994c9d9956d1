"""The settings of a Debezium connector, as JSON files have them, and what becomes of each here."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from headrace.cdc.choice import TableChoice
from headrace.errors import InvalidSetting, Unsupported

SnapshotMode = Literal["initial", "never", "when_needed"]

_CONNECTORS = {
    "io.debezium.connector.postgresql.PostgresConnector": "postgresql",
    "io.debezium.connector.mysql.MySqlConnector": "mysql",
    "io.debezium.connector.mariadb.MariaDbConnector": "mysql",
}
_PORTS = {"postgresql": "5432", "mysql": "3306"}

_SNAPSHOTS: dict[str, SnapshotMode] = {
    "initial": "initial",
    "never": "never",
    "no_data": "never",
    "schema_only": "never",
    "when_needed": "when_needed",
}

_EXPECTED = {
    "plugin.name": ("pgoutput", "changes are read with pgoutput, which PostgreSQL itself has"),
    "tombstones.on.delete": (
        "true",
        "a delete is always followed by a tombstone, since the topics are compacted",
    ),
    "include.schema.changes": (
        "true",
        "a change of a table's columns is in 'headrace cdc status', not in a topic",
    ),
    "provide.transaction.metadata": (
        "false",
        "each change has its transaction in source.tx and its place in source.order",
    ),
    "decimal.handling.mode": ("precise", "decimals are decimals"),
    "time.precision.mode": ("adaptive", "times are timestamps to the microsecond"),
    "binary.handling.mode": ("bytes", "bytes are bytes"),
    "skipped.operations": ("t", "every change is captured, and a TRUNCATE is a delete of each row"),
    "slot.drop.on.stop": ("false", "the slot is kept until 'headrace cdc detach'"),
    "publication.autocreate.mode": ("filtered", "the publication has exactly the captured tables"),
    "binlog.row.image": ("full", "the binlog has to have whole rows"),
}
"""Settings of which one value is what headrace does; others are not honoured, and this is why."""

_NEEDLESS = {
    "name": "",
    "tasks.max": "",
    "database.server.name": "",
    "schema.history.internal": "a topic's schema is in the log",
    "database.history": "a topic's schema is in the log",
    "key.converter": "records are typed columns; 'headrace consume --json' prints JSON",
    "value.converter": "records are typed columns; 'headrace consume --json' prints JSON",
    "header.converter": "records have no headers",
    "topic.creation": "'headrace topics alter' changes the settings of a topic",
    "offset.": "positions are in the log",
    "errors.": "an error stops the capture, and nothing is skipped",
    "max.batch.size": "batches are as large as a commit of the log may be",
    "max.queue.size": "there is no queue between reading and writing",
    "poll.interval.ms": "changes are read as they come",
    "snapshot.fetch.size": "chunks of a snapshot have a size of their own",
    "snapshot.max.threads": "a snapshot reads chunk by chunk",
    "snapshot.locking.mode": "a snapshot takes no locks",
    "snapshot.isolation.mode": "each chunk knows which transactions it shows",
    "incremental.snapshot": "'headrace cdc snapshot PREFIX TABLE' begins one",
    "signal.": "'headrace cdc snapshot PREFIX TABLE' takes the place of signals",
    "notification.": "'headrace cdc status' shows the progress",
    "heartbeat.interval.ms": "the position of a quiet database is acknowledged anyway",
    "heartbeat.topics.prefix": "the position is in a topic of the capture's own",
    "heartbeat.action.query": "heartbeats need no table",
    "topic.naming.strategy": "topics are PREFIX.SCHEMA.TABLE",
    "topic.heartbeat.prefix": "the position is in a topic of the capture's own",
    "schema.name.adjustment.mode": "column names stay as they are",
    "message.key.columns": "the key of a record is the primary key of its row",
    "column.mask": "values are captured as they are. Leave the column out of a view instead",
    "column.truncate": "values are captured as they are",
    "column.propagate": "a column's type is that of the topic's column",
    "datatype.propagate": "a column's type is that of the topic's column",
    "column.include.list": "all columns of a captured table are captured",
    "column.exclude.list": "all columns of a captured table are captured",
    "column.whitelist": "all columns of a captured table are captured",
    "column.blacklist": "all columns of a captured table are captured",
    "converters": "types have one mapping",
    "interval.handling.mode": "types have one mapping",
    "hstore.handling.mode": "types have one mapping",
    "predicates": "a pipeline does this: filter what it reads",
    "transforms": "a pipeline does this: map, filter or route what it reads",
    "database.server.id": "a free one is chosen",
    "database.connectionTimeZone": "times are read in UTC",
    "database.ssl": "give sslmode and the like in the address of --database",
    "event.processing.failure.handling.mode": "an error stops the capture, and nothing is skipped",
    "inconsistent.schema.handling.mode": "an error stops the capture, and nothing is skipped",
    "unavailable.value.placeholder": "values that the database did not send are filled in",
    "toasted.value.placeholder": "values that the database did not send are filled in",
    "replica.identity.autoset.values": "`before` comes from the capture's copy of each row",
    "snapshot.select.statement.overrides": "a snapshot reads whole rows",
    "snapshot.include.collection.list": "a snapshot has all captured tables",
    "custom.metric.tags": "",
    "status.update.interval.ms": "PostgreSQL is answered at once",
    "xmin.fetch.interval.ms": "",
    "retriable.restart.connector.wait.ms": "'headrace cdc run' can be started again at any time",
}
"""Settings, or the beginnings of their names, without a meaning here. Nothing is said of a name
without a reason: it changes nothing that anybody could see."""

_HONOURED = (
    "connector.class",
    "database.hostname",
    "database.port",
    "database.user",
    "database.password",
    "database.dbname",
    "database.include.list",
    "database.sslmode",
    "topic.prefix",
    "table.include.list",
    "table.exclude.list",
    "table.whitelist",
    "table.blacklist",
    "schema.include.list",
    "schema.exclude.list",
    "schema.whitelist",
    "schema.blacklist",
    "slot.name",
    "publication.name",
    "snapshot.mode",
)


@dataclass(frozen=True)
class Unhonoured:
    """A setting that has no effect here, and why."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Connector:
    """A capture as a connector's settings describe it.

    `address` is without the password. `unhonoured` are the settings that have no effect.
    """

    kind: str
    address: str
    prefix: str | None
    tables: TableChoice
    password: str | None = field(default=None, repr=False)
    snapshot: SnapshotMode = "initial"
    slot: str | None = None
    publication: str | None = None
    unhonoured: tuple[Unhonoured, ...] = ()


def load_connector(path: Path) -> Connector:
    """Read a connector's settings from a JSON file."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSetting(f"{path} is not a text file") from None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidSetting(
            f"{path} is not JSON: {error}",
            hint='A connector looks like {"name": ..., "config": {"connector.class": ...}}',
        ) from None
    return parse_connector(found)


def parse_connector(found: Any, environment: Mapping[str, str] | None = None) -> Connector:
    """The settings of a connector, bare or as `{"name": ..., "config": {...}}`.

    `${env:NAME}` and `${file:PATH:NAME}` stand for values, as in Kafka Connect.
    """
    if isinstance(found, dict) and isinstance(found.get("config"), dict):
        found = found["config"]
    if not isinstance(found, dict) or "connector.class" not in found:
        raise InvalidSetting(
            "This is not the configuration of a Debezium connector: it has no 'connector.class'",
            hint='Give {"connector.class": ..., ...}, or {"name": ..., "config": {...}}',
        )
    variables = os.environ if environment is None else environment
    return _Reading({str(name): _text(value, variables) for name, value in found.items()}).read()


class _Reading:
    """Reads setting by setting."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._unhonoured: list[Unhonoured] = []

    def read(self) -> Connector:
        kind = self._kind()
        for name in self._settings:
            self._judge(name)
        return Connector(
            kind,
            self._address(kind),
            self._get("topic.prefix", "database.server.name"),
            self._tables(),
            self._get("database.password"),
            self._snapshot(),
            self._get("slot.name"),
            self._get("publication.name"),
            tuple(self._unhonoured),
        )

    def _kind(self) -> str:
        given = self._settings["connector.class"]
        kind = _CONNECTORS.get(given)
        if kind is None:
            near = difflib.get_close_matches(given, _CONNECTORS, 1)
            raise Unsupported(
                f"There is no capture for the connector {given!r}",
                hint=f"Did you mean {near[0]!r}?"
                if near
                else "There is for PostgreSQL, MySQL and MariaDB, and for SQLite without a file "
                "like this: headrace cdc attach shop.db",
                capability="CONNECTOR",
            )
        return kind

    def _judge(self, name: str) -> None:
        """Note a setting that has no effect, and why."""
        value = self._settings[name]
        if name in _HONOURED:
            return
        if name in _EXPECTED:
            expected, reason = _EXPECTED[name]
            if value.lower() != expected:
                self._unhonoured.append(Unhonoured(name, value, reason))
            return
        beginnings = [known for known in _NEEDLESS if name.startswith(known)]
        if beginnings:
            if reason := _NEEDLESS[max(beginnings, key=len)]:
                self._unhonoured.append(Unhonoured(name, value, reason))
            return
        near = difflib.get_close_matches(name, [*_HONOURED, *_EXPECTED, *_NEEDLESS], 1, 0.8)
        reason = f"there is no such setting. Did you mean {near[0]}?" if near else "it is unknown"
        self._unhonoured.append(Unhonoured(name, value, reason))

    def _address(self, kind: str) -> str:
        """The address of the database, without the password."""
        database = self._get("database.dbname")
        if kind == "mysql":
            listed = (self._get("database.include.list") or database or "").split(",")
            if len(listed) > 1:
                raise Unsupported(
                    "database.include.list names several databases, and a capture is of one",
                    hint="Attach each of them with a prefix of its own",
                    capability="DATABASES",
                )
            database = listed[0]
        if not database:
            name = "database.dbname" if kind == "postgresql" else "database.include.list"
            raise InvalidSetting(f"The configuration has no {name}", hint="It names the database")
        host = self._get("database.hostname") or "localhost"
        port = self._get("database.port") or _PORTS[kind]
        if not port.isdigit():
            raise InvalidSetting(f"database.port cannot be {port!r}", hint="Give a number")
        user = self._get("database.user")
        login = f"{quote(user, safe='')}@" if user else ""
        mode = self._get("database.sslmode")
        options = f"?sslmode={quote(mode)}" if mode and kind == "postgresql" else ""
        return f"{kind}://{login}{host}:{port}/{quote(database, safe='')}{options}"

    def _tables(self) -> TableChoice:
        return TableChoice(
            include=self._patterns("table.include.list", "table.whitelist"),
            exclude=self._patterns("table.exclude.list", "table.blacklist"),
            schemas=self._patterns("schema.include.list", "schema.whitelist"),
            no_schemas=self._patterns("schema.exclude.list", "schema.blacklist"),
        )

    def _patterns(self, *names: str) -> tuple[str, ...]:
        """The regular expressions of a list, in which a comma can be escaped."""
        text = self._get(*names) or ""
        found = [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]
        patterns = tuple(part for part in found if part)
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise InvalidSetting(
                    f"{pattern!r} in {names[0]} is not a regular expression: {error}",
                    hint="Names are SCHEMA.TABLE, such as public.orders or public[.].*",
                ) from None
        return patterns

    def _snapshot(self) -> SnapshotMode:
        given = (self._get("snapshot.mode") or "initial").lower()
        if given in _SNAPSHOTS:
            return _SNAPSHOTS[given]
        reasons = {
            "always": "a snapshot is taken once; 'headrace cdc snapshot PREFIX TABLE' takes "
            "another. This one is initial",
            "initial_only": "the capture goes on after the snapshot. "
            "'headrace cdc run --until-caught-up' ends",
        }
        reason = reasons.get(given, "this one is initial")
        self._unhonoured.append(Unhonoured("snapshot.mode", given, reason))
        return "initial"

    def _get(self, *names: str) -> str | None:
        """The first of these settings that is there."""
        for name in names:
            if self._settings.get(name):
                return self._settings[name]
        return None


def _text(value: Any, environment: Mapping[str, str]) -> str:
    """A setting as text, with what stands for something replaced."""
    if isinstance(value, bool):
        return str(value).lower()
    return re.sub(r"\$\{(env|file):([^}]*)\}", lambda m: _meant(m, environment), str(value))


def _meant(found: re.Match[str], environment: Mapping[str, str]) -> str:
    kind, rest = found[1], found[2]
    if kind == "env":
        name = rest.rpartition(":")[2]
        if name not in environment:
            raise InvalidSetting(f"The variable {name!r} is not set", hint="Set it, or its value")
        return environment[name]
    path, _, name = rest.rpartition(":")
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path!r} cannot be read: {error}") from None
    for line in lines:
        key, is_setting, value = line.partition("=")
        if is_setting and key.strip() == name:
            return value.strip()
    raise InvalidSetting(f"{path!r} has no line {name}=...", hint="It names a secret")
