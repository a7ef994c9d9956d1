"""`headrace cdc status`: how far captures are, and what the database holds back for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headrace.cli.cdc_attach import Prefix, is_running
from headrace.cli.cdc_tables import table_lines
from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl
from headrace.cli.output import facts, moment, plain, show, show_json
from headrace.clock import SECOND, SystemClock
from headrace.errors import HeadraceError, UnknownTopic
from headrace.wording import lag_text, many, span, when

if TYPE_CHECKING:
    from headrace.cdc.attachment import Attachment
    from headrace.cdc.contract import SourceState
    from headrace.cdc.state import CaptureState
    from headrace.log import Log


@dataclass(frozen=True)
class _Found:
    """All that is known of a capture."""

    attachment: Attachment
    running: bool
    state: CaptureState
    source: SourceState | None
    trouble: str | None


def status(prefix: Prefix = None, *, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Show how far captures are: position, lag, snapshots, gaps and changes of schemas.

    With --json, one object per capture: prefix, address, running, position, lag, unit, last_change,
    transactions, changes, tables, notices, facts, trouble.
    """
    from headrace.cdc.attachment import attached, attachments
    from headrace.log import open_log

    with open_log(log, create=False) as opened:
        chosen = attachments(opened) if prefix is None else [attached(opened, prefix)]
        found = [_look(opened, attachment) for attachment in chosen]
    for each in found:
        if json:
            show_json(_as_json(each))
        else:
            _show(each)
    if not found and not json:
        say(f"No database is attached to {log}: 'headrace cdc attach' attaches one")


def _look(log: Log, attachment: Attachment) -> _Found:
    from headrace.cdc.opening import open_source
    from headrace.cdc.state import CaptureState, read_state

    try:
        state = read_state(log, attachment.prefix)
    except UnknownTopic:
        state = CaptureState()
    source, trouble = None, None
    try:
        with open_source(attachment) as opened:
            source = opened.state(state.reached.position)
    except HeadraceError as error:
        trouble = str(error)
    return _Found(attachment, is_running(log, attachment.prefix), state, source, trouble)


def _show(found: _Found) -> None:
    """Print a capture."""
    from headrace.cdc.supervised import TableProgress

    reached, source = found.state.reached, found.source
    lines = facts()
    lines.add_row("capture", plain(found.attachment.prefix, "bold"))
    lines.add_row("database", plain(found.attachment.address))
    lines.add_row("state", "running" if found.running else "not running")
    if found.trouble is not None:
        lines.add_row("trouble", plain(found.trouble, "bold red"))
    lines.add_row("position", plain(reached.position or "-"))
    if source is not None:
        lines.add_row("lag", plain(lag_text(source.lag, source.unit)))
    if reached.at is not None:
        ago = max(0, SystemClock().now() - reached.at) / SECOND
        lines.add_row("last change", plain(f"{when(reached.at)}, {span(ago)} ago"))
    lines.add_row(
        "captured",
        plain(f"{many(reached.changes, 'change')}, {many(reached.transactions, 'transaction')}"),
    )
    for name, value in (source.facts if source else {}).items():
        lines.add_row(plain(name), plain(value))
    for notice in found.state.notices:
        lines.add_row(plain(notice.kind), plain(f"{when(notice.time)} {notice.text}"))
    show(lines)
    tables = [TableProgress.of(state) for state in found.state.tables.values()]
    if tables:
        show("", table_lines(tables))


def _as_json(found: _Found) -> dict[str, Any]:
    from headrace.cdc.supervised import TableProgress

    reached, source = found.state.reached, found.source
    return {
        "prefix": found.attachment.prefix,
        "address": found.attachment.address,
        "running": found.running,
        "position": reached.position,
        "lag": None if source is None else source.lag,
        "unit": None if source is None else source.unit,
        "last_change": moment(reached.at),
        "transactions": reached.transactions,
        "changes": reached.changes,
        "tables": [asdict(TableProgress.of(state)) for state in found.state.tables.values()],
        "notices": [
            asdict(notice) | {"time": moment(notice.time)} for notice in found.state.notices
        ],
        "facts": {} if source is None else dict(source.facts),
        "trouble": found.trouble,
    }
