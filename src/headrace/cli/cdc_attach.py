"""`headrace cdc attach` and `detach`: set up the capture of a database, and remove its traces."""

from __future__ import annotations

import contextlib
import fcntl
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, Yes, confirm
from headrace.cli.output import show_json
from headrace.clock import SECOND, SystemClock
from headrace.errors import AlreadyRunning, InvalidSetting, UserError
from headrace.wording import many

if TYPE_CHECKING:
    from headrace.cdc.attachment import Attachment
    from headrace.cdc.connector import Connector
    from headrace.cdc.opening import Database
    from headrace.log import Log

Prefix = Annotated[
    str | None,
    typer.Argument(
        metavar="[PREFIX]",
        help="The captured database. Default: the only one there is.",
        show_default=False,
    ),
]
"""The prefix of an attached database."""


def attach(
    database: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATABASE]",
            help="A file of SQLite (shop.db), postgresql://USER@HOST/DATABASE or "
            "mysql://USER@HOST/DATABASE.",
            show_default=False,
        ),
    ] = None,
    *,
    tables: Annotated[
        str | None,
        typer.Option(metavar="T,T", help="The tables: orders, or public.orders. Default: all."),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="First part of the topics' names. Default: the database's name."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The JSON of a Debezium connector, instead of a URL."),
    ] = None,
    snapshot: Annotated[
        Literal["initial", "never", "when_needed"] | None,
        typer.Option(
            metavar="initial|never|when_needed",
            help="Which tables to snapshot: new ones (the default), none, or also those that a gap "
            "has left behind.",
        ),
    ] = None,
    slot: Annotated[
        str | None, typer.Option(metavar="NAME", help="PostgreSQL: the replication slot.")
    ] = None,
    publication: Annotated[
        str | None, typer.Option(metavar="NAME", help="PostgreSQL: the publication.")
    ] = None,
    outbox: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE", help="Route the rows of this table to topics as events: an outbox."
        ),
    ] = None,
    outbox_set: Annotated[
        list[str] | None,
        typer.Option(
            "--outbox-set",
            metavar="NAME=VALUE",
            help="A column or the topic of the outbox: payload=body, topic={prefix}.events.{type}.",
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file whose first line is the password."),
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Set up the capture of a database: triggers, or a slot and a publication. Does not run it.

    Changes are kept for the capture from now on, and 'headrace cdc run' writes them to topics. To
    attach again with other tables or settings changes them.

    No password is stored. It comes from HEADRACE_CDC_PASSWORD, from --password-file, from the file
    of --config, or, for PostgreSQL, from PGPASSWORD or ~/.pgpass.
    """
    # Imported here, since they load Arrow.
    from headrace.cdc.attachment import remember
    from headrace.cdc.connector import load_connector
    from headrace.cdc.opening import open_source
    from headrace.log import open_log
    from headrace.log.declared import check_name

    if (database is None) == (config is None):
        raise UserError(
            "Name one database", hint="headrace cdc attach shop.db, or --config connector.json"
        )
    if outbox_set and outbox is None:
        raise UserError("--outbox-set needs an outbox", hint="Add --outbox TABLE")
    connector = None if config is None else load_connector(config)
    found = _database(database, connector, password_file, prefix)
    made = _attachment(found, connector, prefix, tables, snapshot, slot, publication)
    check_name(made.prefix, "prefix")
    made = _with_login(made, password_file, config if connector and connector.password else None)
    made = _with_outbox(made, outbox, outbox_set or [])
    with open_log(log) as opened, locked(opened, made.prefix), open_source(made, found) as source:
        source.attach()
        captured = source.tables()
        remember(opened, made)
    if connector is not None and not json:
        for each in connector.unhonoured:
            say(f"not honoured: {each.name}={each.value}: {each.reason}")
    topics = [f"{made.prefix}.{table.full_name}" for table in captured]
    if json:
        show_json(_as_json(made, topics, connector))
        return
    say(f"Attached {made.address} as {made.prefix!r}: {', '.join(made.tables)}")
    if database is not None and found.password is not None and password_file is None:
        say("The password is not stored, and every user of this machine could read it just now")
        say("  → Set HEADRACE_CDC_PASSWORD, or attach with --password-file FILE")
    say(f"Capture it: headrace cdc run {made.prefix}")


def detach(
    prefix: Prefix = None,
    *,
    yes: Yes = False,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="Only forget it here: its database is gone for good."),
    ] = False,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Remove every trace of the capture from the database. The topics stay.

    Changes made after that are not captured. To attach again compares the tables with their topics,
    with 'headrace cdc heal'.
    """
    from headrace.cdc.attachment import attached
    from headrace.cdc.attachment import forget as forget_attachment
    from headrace.cdc.notes import forget_capture_note
    from headrace.cdc.opening import open_source
    from headrace.log import open_log

    with open_log(log, create=False) as opened:
        found = attached(opened, prefix)
        tables = many(len(found.tables), "table")
        confirm(f"Stop the capture of {tables} in {found.address} for good?", yes=yes)
        with locked(opened, found.prefix):
            if not forget:
                with open_source(found) as source:
                    source.detach()
            forget_attachment(opened, found.prefix)
            forget_capture_note(opened, found.prefix)
    if json:
        show_json({"prefix": found.prefix, "address": found.address, "tables": [*found.tables]})
    else:
        say(f"Detached {found.address}. Its topics stay: {found.prefix}.*")


def is_running(log: Log, prefix: str) -> bool:
    """True if a process on this machine runs a capture."""
    try:
        with _lock_path(log, prefix).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others may look, too
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def locked(log: Log, prefix: str) -> Iterator[None]:
    """Hold the lock of a running capture."""
    from headrace.store.lock import only_one

    path, refusal = _lock_path(log, prefix), f"The capture {prefix!r} is running"
    clock = SystemClock()
    with contextlib.ExitStack() as holding:
        for last in (*[False] * 20, True):
            try:
                holding.enter_context(only_one(path, refusal, "Stop it first"))
                break
            except AlreadyRunning:
                if last:
                    raise
                clock.sleep(SECOND // 20)  # somebody may only be looking
        yield


def _lock_path(log: Log, prefix: str) -> Path:
    from headrace.cdc.attachment import captures_folder

    return captures_folder(log) / f"{prefix}.lock"


def _database(
    given: str | None, connector: Connector | None, password_file: Path | None, prefix: str | None
) -> Database:
    """The database with its password, wherever that comes from."""
    from headrace.cdc.attachment import read_password, variable_password
    from headrace.cdc.opening import Database

    if connector is not None:
        found = Database(connector.kind, connector.address, connector.password)
        name = prefix or connector.prefix or found.name
    else:
        assert given is not None  # the caller has checked it
        found = Database.parse(given)
        name = prefix or found.name
    if password_file is not None:
        return Database(found.kind, found.address, read_password(password_file))
    return Database(found.kind, found.address, variable_password(name) or found.password)


def _attachment(
    database: Database,
    connector: Connector | None,
    prefix: str | None,
    tables: str | None,
    snapshot: Literal["initial", "never", "when_needed"] | None,
    slot: str | None,
    publication: str | None,
) -> Attachment:
    """The settings: options first, then the connector's."""
    from headrace.cdc.attachment import Attachment
    from headrace.cdc.choice import TableChoice

    choice = connector.tables if connector else TableChoice()
    if tables is not None:
        choice = TableChoice(names=tuple(t.strip() for t in tables.split(",") if t.strip()))
    made = Attachment(
        prefix or (connector and connector.prefix) or database.name,
        database.kind,
        database.address,
        tuple(".".join(table) for table in choice.of(database.tables())),
        snapshot or (connector.snapshot if connector else "initial"),
        slot or (connector.slot if connector else None),
        publication or (connector.publication if connector else None),
    )
    if database.kind == "postgresql":
        # Each capture has a slot of its own, also two of one database.
        own = re.sub(r"[^a-z0-9_]", "_", f"headrace_{made.prefix.lower()}")[:63]
        return replace(made, slot=made.slot or own)
    if made.slot or made.publication:
        raise UserError(
            f"A slot and a publication are PostgreSQL's, and this database is {database.kind}",
            hint="Leave out --slot and --publication",
        )
    return made


def _with_login(made: Attachment, password_file: Path | None, config: Path | None) -> Attachment:
    """The settings, with the file that has the password."""
    return replace(
        made,
        password_file=None if password_file is None else str(password_file.resolve()),
        connector=None if config is None else str(config.resolve()),
    )


def _with_outbox(made: Attachment, table: str | None, given: list[str]) -> Attachment:
    """The settings, with those of the outbox."""
    from headrace.cdc.outbox import Outbox

    if table is None:
        return made
    settings = {"table": table}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise InvalidSetting(f"{each!r} is not a setting", hint="Write NAME=VALUE")
        settings[name.strip()] = value.strip()
    Outbox.parse(settings)
    if not any(table in (name, name.partition(".")[2]) for name in made.tables):
        raise UserError(
            f"The outbox {table!r} is not one of the captured tables",
            hint="Add it to --tables",
        )
    return replace(made, outbox=settings)


def _as_json(made: Attachment, topics: list[str], connector: Connector | None) -> dict[str, Any]:
    return {
        "prefix": made.prefix,
        "address": made.address,
        "tables": [*made.tables],
        "topics": topics,
        "snapshot": made.snapshot,
        "slot": made.slot,
        "publication": made.publication,
        "not_honoured": {
            each.name: each.reason for each in (connector.unhonoured if connector else ())
        },
    }
