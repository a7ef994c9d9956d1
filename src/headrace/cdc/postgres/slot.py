"""The slot and the publication: what a capture needs in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg2

from headrace.cdc.postgres.catalog import CatalogTable, Query
from headrace.cdc.postgres.failures import quoted, without_replication
from headrace.cdc.postgres.position import read_lsn
from headrace.errors import SourceUnavailable, UserError

_PATIENCE: Final = "30s"


@dataclass(frozen=True)
class Slot:
    """A replication slot as the server shows it."""

    name: str
    plugin: str | None
    database: str | None
    reader: int | None
    """The process that reads it."""
    keeps_from: int | None
    """The place from which on it holds WAL back."""
    confirmed: int | None
    """The place up to which changes were acknowledged."""
    status: str | None
    """`lost` if the server has removed WAL that it needs."""
    room: int | None
    """Bytes that may be written until then, if there is a limit."""

    @property
    def lost(self) -> bool:
        return self.status == "lost"


def find_slot(query: Query, name: str) -> Slot | None:
    """The slot of a name."""
    rows = query(
        "SELECT slot_name, plugin, database, active_pid, restart_lsn::text, "
        "confirmed_flush_lsn::text, wal_status, safe_wal_size FROM pg_replication_slots "
        "WHERE slot_name = %s",
        name,
    )
    if not rows:
        return None
    found, plugin, database, reader, keeps_from, confirmed, status, room = rows[0]
    return Slot(
        found, plugin, database, reader, _place(keeps_from), _place(confirmed), status, room
    )


def check_server(query: Query, address: str, user: str) -> None:
    """Raise if the server's settings or the role do not allow capturing."""
    ((level, recovers, may_replicate),) = query(
        "SELECT current_setting('wal_level'), pg_is_in_recovery(), "
        "(SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)"
    )
    if recovers:
        raise UserError(
            f"{address} is a standby, from which changes cannot be read",
            hint="Give the address of the primary server",
        )
    if level != "logical":
        raise UserError(
            f"{address} has wal_level = {level}, so its log has no changes of rows",
            hint="Run as a superuser: ALTER SYSTEM SET wal_level = logical; restart the server",
        )
    if not may_replicate:
        raise without_replication(address, user)


def ensure_publication(
    query: Query, name: str, tables: Sequence[CatalogTable], database: str, user: str
) -> bool:
    """Make the publication have exactly these tables. False if there was none."""
    for table in tables:
        table.check(user)
    found = query("SELECT puballtables, pubviaroot FROM pg_publication WHERE pubname = %s", name)
    named = ", ".join(table.quoted for table in tables)
    own = quoted(name)
    making = f"CREATE PUBLICATION {own} FOR TABLE {named} WITH (publish_via_partition_root = true)"
    try:
        if not found:
            query(making)
            return False
        wanted = {(table.schema, table.name) for table in tables}
        if (found[0][0] or _published(query, name) == wanted) and found[0][1]:
            return True
        if not found[0][0]:
            query(f"ALTER PUBLICATION {own} SET TABLE {named}")
        query(f"ALTER PUBLICATION {own} SET (publish_via_partition_root = true)")
        return True
    except psycopg2.errors.InsufficientPrivilege:
        again = f"DROP PUBLICATION {own}; {making}" if found else making
        raise UserError(
            f"The role {user} may not make the publication {name} of these tables",
            hint=f"Run as the owner of the tables, with CREATE on the database {database}: {again}",
        ) from None


def ensure_slot(
    query: Query, name: str, database: str, address: str, *, readable: bool
) -> str | None:
    """Make the slot, if it is not there or cannot be read. Returns why it was made anew.

    It is not `readable` if the publication was made after it.
    """
    slot = find_slot(query, name)
    if slot is not None:
        if slot.plugin != "pgoutput" or slot.database != database:
            raise UserError(
                f"The slot {name} of {address} belongs to somebody else: it is for the plugin "
                f"{slot.plugin} and the database {slot.database}",
                hint="Give the capture another name for its slot",
            )
        if slot.lost:
            reason = f"the server has removed WAL that the slot {name} was to keep"
        elif not readable:
            reason = f"the publication of the slot {name} was dropped"
        else:
            return None
        drop_slot(query, name, address)
    else:
        reason = f"the slot {name} was dropped"
    _create_slot(query, name, address)
    return reason


def _create_slot(query: Query, name: str, address: str) -> None:
    try:
        # It waits for all transactions that write now, and somebody may have left one open.
        query(f"SET statement_timeout = '{_PATIENCE}'")
        query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", name)
    except psycopg2.errors.QueryCanceled:
        raise SourceUnavailable(
            f"{address} could not make the slot {name} within {_PATIENCE}, since transactions are "
            f"open: {_writers(query)}",
            hint="End them, or wait until they end",
        ) from None
    except psycopg2.errors.DuplicateObject:
        return  # by another capture, meanwhile
    except psycopg2.errors.ConfigurationLimitExceeded:
        raise UserError(
            f"{address} has no replication slot to spare: {_slots(query)}",
            hint="Run as a superuser: ALTER SYSTEM SET max_replication_slots = 20; restart the "
            "server. Or drop a slot that nobody reads: SELECT pg_drop_replication_slot('NAME')",
        ) from None
    except psycopg2.errors.InvalidName:
        raise UserError(
            f"{name!r} cannot be the name of a slot",
            hint="Use up to 63 small letters, digits and underscores",
        ) from None
    finally:
        query("SET statement_timeout = 0")


def take_over(query: Query, slot: Slot, application: str) -> None:
    """End an older capture that still reads the slot. Another kind of reader stays.

    The log lets the older one write no more, and a reader that lost its network may stay for long.
    """
    if slot.reader is not None:
        query(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE pid = %s AND application_name = %s AND usename = current_user",
            slot.reader,
            application,
        )


def drop_slot(query: Query, name: str, address: str) -> None:
    """Drop a slot, if it is there and nobody reads it."""
    try:
        query(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = %s",
            name,
        )
    except psycopg2.errors.ObjectInUse as error:
        raise SourceUnavailable(
            f"{address} still has a reader of the slot {name}: {str(error).strip()}",
            hint="Stop the capture that reads it",
        ) from None


def drop_publication(query: Query, name: str) -> None:
    """Drop a publication, if it is there."""
    query(f"DROP PUBLICATION IF EXISTS {quoted(name)}")


def _place(lsn: str | None) -> int | None:
    return None if lsn is None else read_lsn(lsn)


def _published(query: Query, name: str) -> set[tuple[Any, ...]]:
    return set(
        query("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", name)
    )


def _writers(query: Query) -> str:
    rows = query(
        "SELECT pid, usename, age(clock_timestamp(), xact_start)::text FROM pg_stat_activity "
        "WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 5"
    )
    return "; ".join(f"process {pid} of {role} since {age}" for pid, role, age in rows) or "unknown"


def _slots(query: Query) -> str:
    rows = query("SELECT slot_name, active FROM pg_replication_slots ORDER BY slot_name LIMIT 20")
    return ", ".join(f"{name} ({'read' if active else 'not read'})" for name, active in rows)
