"""`headrace produce`: JSON lines and files into a topic."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from headrace.backfill.finding import find_files, is_selection
from headrace.backfill.json_lines import line_reader
from headrace.cli.backfilling import FileTally, load_files
from headrace.cli.failures import INTERRUPTED, say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app
from headrace.cli.output import err, show_json
from headrace.cli.producing import BadLines, Source, Tally, send_all, send_in_chunks
from headrace.clock import SECOND, SystemClock
from headrace.errors import HeadraceError, UserError
from headrace.log import Acks, open_log
from headrace.wording import count, many, size, span

app = new_app()


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    *,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="The input; - is standard input, the default. A .parquet, .csv or .jsonl file, a "
            "folder of them or a quoted pattern is loaded exactly once. May be repeated.",
        ),
    ] = None,
    acks: Annotated[
        Acks,
        typer.Option(
            metavar="none|written|synced",
            help="What to wait for: synced (records are on disk), written (in files, so that they "
            "survive this process) or none.",
            show_default=True,
        ),
    ] = "synced",
    producer_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Write each line exactly once, even if this command is killed and run again with "
            "the same ID and the same lines. It commits 1,000 lines at a time, and skips those "
            "that are in the log already. Another ID loads .parquet, .csv and .jsonl files again.",
        ),
    ] = None,
    skip_bad: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Skip bad lines and rows, and write them to FILE as JSON with line, error, text.",
        ),
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Write JSON lines, or Parquet and CSV files, to a topic.

    Raw topic: {"key": …, "value": …, "headers": {…}, "partition": N}, of which only "value" is
    required. Text is stored as UTF-8, null is no key or a tombstone, {"base64": "…"} is bytes, and
    any other JSON is stored as JSON. It can read what 'headrace consume --json' prints.

    Typed topic: the row itself, {"url": "/", "at": "2026-01-31T12:00:00Z"}. If no column is
    called "value", {"key": …, "value": null} is a tombstone.

    Files: .parquet, .csv with a header, and .jsonl, one after the other by name. The position in
    a file is stored with its rows, so the same command continues after a kill and adds each row
    once. A file that has changed since is refused.

    It stops at the first bad line, says which lines are in the log, and exits with 2.
    """
    clock = SystemClock()
    started = clock.now()
    inputs = file or ["-"]
    files = find_files(inputs) if any(map(is_selection, inputs)) else None
    if files is None and len(inputs) > 1:
        raise UserError(
            f"{inputs[0]} and {inputs[1]} cannot be read together",
            hint="Several inputs are .parquet, .csv or .jsonl files, folders or quoted patterns",
        )
    tally = Tally() if files is None else FileTally()
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_log(log, create=False))
        read = line_reader(opened.topic(topic).topic)
        lines = stack.enter_context(_lines(inputs[0])) if files is None else None
        bad = stack.enter_context(BadLines(skip_bad))
        total = sum(map(_size, inputs)) if files is None else sum(file.size for file in files)
        stack.enter_context(_watching(tally, total, quiet=json))
        try:
            if isinstance(tally, FileTally):
                loader = tally.loader(opened, topic, acks=acks, job=producer_id or "")
                load_files(loader, files or (), tally, bad)
            else:
                name = "standard input" if inputs == ["-"] else inputs[0]
                source = Source(name, topic, lines or (), read)
                if producer_id is None:
                    send_all(opened, source, tally, bad, acks=acks)
                else:
                    send_in_chunks(opened, source, tally, bad, acks=acks, id=producer_id)
        except KeyboardInterrupt:
            say(f"Interrupted. {tally.where()}")
            raise typer.Exit(INTERRUPTED) from None
        except HeadraceError as error:
            raise _explained(error, tally) from error
    seconds = (clock.now() - started) / SECOND
    if json:
        offsets = {str(p): dataclasses.asdict(r) for p, r in sorted(tally.partitions.items())}
        show_json(
            {
                "topic": topic,
                "records": tally.records,
                "bytes": tally.bytes,
                "skipped": tally.skipped,
                "already": tally.already,
                "seconds": round(seconds, 3),
                "partitions": offsets,
            }
        )
    else:
        say(_summary(topic, tally, seconds, skip_bad))


def _size(file: str) -> int:
    """The bytes of a file; 0 if it has no size, as standard input."""
    return os.path.getsize(file) if file != "-" and os.path.isfile(file) else 0


@contextlib.contextmanager
def _watching(tally: Tally, total: int, *, quiet: bool) -> Iterator[None]:
    """Show the growing tally, and if the total of bytes is known, the share that is done."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    clock = SystemClock()
    started = clock.now()

    def look() -> Table:
        seconds = (clock.now() - started) / SECOND or 1
        line = Table.grid(padding=(0, 2, 0, 0))
        cells = [f"{count(tally.sent)} records", f"{tally.sent / seconds:,.0f} records/s"]
        if tally.skipped:
            cells.append(f"{count(tally.skipped)} bad")
        if total:
            line.add_row(
                *cells, ProgressBar(total, tally.bytes, width=20), f"{tally.bytes / total:.0%}"
            )
        else:
            line.add_row(*cells, size(tally.bytes))
        return line

    # Drawn by another thread from the tally, so that the sender is not slowed down.
    with Live(get_renderable=look, console=err(), transient=True, refresh_per_second=8):
        yield


@contextlib.contextmanager
def _lines(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        if sys.stdin.isatty():
            say("Type one JSON object per line; Ctrl-D ends.")
        yield sys.stdin.buffer
        return
    try:
        with open(file, "rb") as stream:
            yield stream
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error


def _explained(error: HeadraceError, tally: Tally) -> HeadraceError:
    """The same error, with a hint about the lines that are in the log."""
    hints = [hint for hint in (error.hint, tally.where(), tally.advice) if hint]
    return type(error)(error.message, hint="\n".join(hints), **error.details)


def _summary(topic: str, tally: Tally, seconds: float, skip_bad: Path | None) -> str:
    rate = tally.records / seconds if seconds else 0
    parts = [f"{many(tally.records, 'record')} to {topic} in {span(seconds)}"]
    if tally.records:
        parts[0] += f" ({rate:,.0f} records/s)"
    if tally.already:
        parts.append(f"{count(tally.already)} were in the log already")
    if tally.skipped:
        parts.append(f"{many(tally.skipped, f'bad {tally.unit}')} went to {skip_bad}")
    return "; ".join(parts)
