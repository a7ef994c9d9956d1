"""PostgreSQL's errors in our words, with what to do next."""

from __future__ import annotations

from typing import Final

from headrace.errors import HeadraceError, SourceError, SourceUnavailable, UserError

_BACK: Final = "Start the server. The capture goes on where it was"

_AWAY: Final = (
    "starting up", "shutting down", "in recovery mode", "not yet accepting", "too many clients",
    "connection slots are reserved", "number of requested standby", "recovery",
)  # fmt: skip
"""Words in refusals that pass by themselves."""


def refused(said: str, address: str, user: str, database: str) -> HeadraceError:
    """The error of a connection that was not made. It has no code, so its words have to do."""
    text = _first_line(said)
    if "no password supplied" in said:
        return UserError(
            f"{address} wants a password, and none was given",
            hint="Put it into the variable PGPASSWORD, the file ~/.pgpass, or the address",
        )
    if "authentication failed" in said:
        return UserError(
            f"{address} refused the login: {text}",
            hint="Correct the user and the password: in the address, PGPASSWORD or ~/.pgpass",
        )
    if "no pg_hba.conf entry" in said:
        return UserError(
            f"{address} lets nobody in from here: {text}",
            hint=f"Add lines for {user} to pg_hba.conf, for the database {database} and for "
            "replication, and reload the server",
        )
    if "does not exist" in said:
        return UserError(
            f"{address} refused the login: {text}", hint="Correct the user and the database"
        )
    if "WAL sender" in said or "replication role" in said or "permission denied to start" in said:
        return without_replication(address, user)
    if "permission denied for database" in said:
        return UserError(
            f"{address} refused the login: {text}",
            hint=f"Run as its owner: GRANT CONNECT ON DATABASE {database} TO {user}",
        )
    if "SSL" in said or "certificate" in said:
        return UserError(
            f"{address} and this side do not agree on TLS: {text}",
            hint="Correct sslmode, sslrootcert and the like in the address",
        )
    if "FATAL" in said and not any(words in said for words in _AWAY):
        return SourceError(f"{address} refused the connection: {text}")
    return SourceUnavailable(f"{address} does not answer: {text}", hint=_BACK)


def failed(code: str | None, said: str, address: str, user: str) -> HeadraceError:
    """The error of a statement, or of the stream of changes, by its code."""
    text = _first_line(said)
    code = code or ""
    if not code or code[:2] in ("08", "57") or code == "53300":
        return SourceUnavailable(f"{address} ended the connection: {text}", hint=_BACK)
    if code == "55006":
        return SourceUnavailable(
            f"{address} has another reader of the slot: {text}",
            hint="Stop the other capture, or give this one a slot of its own",
        )
    if code == "42501":
        return UserError(
            f"{address} lacks a right: {text}", hint=f"Let its owner GRANT it to {user}"
        )
    if code == "42704" and "publication" in said:
        return SourceError(
            f"{address} has changes from a time without the publication: {text}",
            hint="Run headrace cdc detach and attach, and then the capture with --heal",
        )
    if code in ("58P01", "55000"):
        return SourceError(
            f"{address} cannot read the WAL of the slot any more: {text}",
            hint="Run headrace cdc detach and attach, and then the capture with --heal. A larger "
            "max_slot_wal_keep_size lets a capture be away for longer",
        )
    return SourceError(f"{address} reports error {code}: {text}", code=code)


def without_replication(address: str, user: str) -> UserError:
    """The error for a role that may not read the WAL."""
    return UserError(
        f"{address} may not read changes: the role {user} lacks the right REPLICATION",
        hint=f"Run as a superuser: ALTER ROLE {quoted(user)} REPLICATION",
    )


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _first_line(said: str) -> str:
    """The first line of what the server said, without its prefixes."""
    line = next((line for line in said.splitlines() if line.strip()), "no reason given").strip()
    for prefix in ("FATAL:", "ERROR:", "error:"):
        _, found, rest = line.partition(prefix)
        if found:
            line = rest.strip()
    return line.rstrip(".")
