"""Send lines to a topic in commits, and count their outcomes, for `produce`."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Self, TextIO

from headrace.backfill.json_lines import Sent
from headrace.errors import HeadraceError, InvalidRecord, UnknownPartition, UserError
from headrace.log import Acks, Delivery, Log, Producer, Receipt

CHUNK_LINES = 1_000
"""Lines per commit of a producer with an id. A restart counts in chunks, so it is fixed."""
_CHUNK_BYTES = 4 << 20

_REFUSALS = (InvalidRecord, UnknownPartition)


@dataclass
class Offsets:
    """Offsets written to a partition: from `first` to `end`, `records` of them by us."""

    first: int
    end: int
    records: int


@dataclass
class Tally:
    """The outcome of the lines so far."""

    unit: ClassVar[str] = "line"
    sent: int = 0
    bytes: int = 0
    records: int = 0
    skipped: int = 0
    already: int = 0
    line_in_log: int = 0
    refused: int = 0
    advice: str = ""
    partitions: dict[int, Offsets] = field(default_factory=dict)

    def add(self, receipt: Receipt, line: int) -> None:
        """Note that everything up to `line` is in the log."""
        self.line_in_log = line
        for ack in receipt.acks:
            here = self.partitions.setdefault(ack.partition, Offsets(ack.first, ack.end, 0))
            here.end = ack.end
            here.records += ack.end - ack.first
            self.records += ack.end - ack.first

    def where(self) -> str:
        """A sentence that says which lines are in the log."""
        said = "No line is in the log"
        if self.line_in_log:
            lines = "Line 1 is" if self.line_in_log == 1 else f"Lines 1 to {self.line_in_log} are"
            but = f" except {self.skipped} bad ones" if self.skipped else ""
            said = f"{lines} in the log{but}"
        return f"{said}; line {self.refused} was rejected" if self.refused else said


class BadLines:
    """The file for rejected lines, if the user wants to skip them."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._file = self._path.open("w", buffering=1, encoding="utf-8")
            except OSError as error:
                raise UserError(f"{self._path} cannot be written: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def wanted(self) -> bool:
        """True if bad lines are skipped."""
        return self._file is not None

    def take(self, number: int, line: bytes, error: HeadraceError) -> bool:
        """True if bad lines are skipped; the line and its error are then in the file."""
        text = line.decode(errors="replace").rstrip("\r\n")
        return self.write({"line": number, "error": error.message, "text": text})

    def write(self, entry: Mapping[str, Any]) -> bool:
        """Write an entry, if bad lines are skipped."""
        if self._file is None:
            return False
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        return True


@dataclass(frozen=True)
class Source:
    """Lines, with their origin and their topic."""

    name: str
    topic: str
    lines: Iterable[bytes]
    read: Callable[[bytes], Sent]


def send_all(log: Log, source: Source, tally: Tally, bad: BadLines, *, acks: Acks) -> None:
    """Send every line, in commits with its neighbours."""
    deliveries: deque[tuple[Delivery, int]] = deque()
    linger = timedelta(milliseconds=5 if source.name == "standard input" else 100)
    try:
        with log.producer(acks=acks, linger=linger) as producer:
            for number, delivery in _sent(producer.send, source, tally, bad):
                if deliveries and deliveries[-1][0] is delivery:
                    deliveries[-1] = (delivery, number)
                    continue
                _settle(deliveries, tally)
                deliveries.append((delivery, number))
    except _REFUSALS:
        rest = f"tail -n +{tally.refused} {source.name} | headrace produce {source.topic}"
        send = "" if source.name == "standard input" else f" and send the rest: {rest}"
        tally.advice = f"Fix it{send}, or skip bad lines with --skip-bad FILE"
        raise
    finally:
        _settle(deliveries, tally)


def _settle(deliveries: deque[tuple[Delivery, int]], tally: Tally) -> None:
    """Count the batches that are in the log by now, in order."""
    while deliveries and deliveries[0][0].done:
        delivery, line = deliveries.popleft()
        try:
            tally.add(delivery.wait(), line)
        except HeadraceError:
            deliveries.clear()  # the commit raises it; later batches are not in the log either


def send_in_chunks(
    log: Log, source: Source, tally: Tally, bad: BadLines, *, acks: Acks, id: str
) -> None:
    """Send the lines in chunks, the n-th with sequence number n; skip chunks in the log.

    A chunk without a good line has no number. So a restart reads every line again, which also
    completes the file of bad lines.
    """
    with log.producer(id=id, acks=acks) as producer:
        done, sequence = producer.next_sequence, 0
        last = _last_chunk(producer, source.topic, id)
        for chunk in _chunks(source.lines):
            transaction = producer.transaction()
            part = Source(source.name, source.topic, (line for _, line in chunk), source.read)
            numbers = [number for number, _ in chunk]
            try:
                accepted = sum(1 for _ in _sent(transaction.send, part, tally, bad, numbers))
            except _REFUSALS:
                transaction.abort()
                tally.advice = (
                    "Fix it and run the same command again, which continues after the lines in "
                    "the log, or skip bad lines with --skip-bad FILE"
                )
                raise
            if not accepted:
                transaction.abort()
                continue
            if sequence < done:
                transaction.abort()
                if sequence == done - 1 and last not in (None, accepted):
                    raise UserError(
                        f"Lines {numbers[0]} to {numbers[-1]} of {source.name} differ from what "
                        f"producer {id!r} has sent: there were {last} records, and now there are "
                        f"{accepted}",
                        hint="Use the same lines as in the first run, or another --producer-id",
                    )
                tally.already += accepted
                tally.line_in_log = numbers[-1]
            elif (receipt := transaction.commit()) is not None:
                tally.add(receipt, numbers[-1])
            sequence += 1
        if sequence < done:
            raise UserError(
                f"Producer {id!r} has sent more than {source.name} holds",
                hint="Use the same lines as in the first run, or another --producer-id",
            )


def _last_chunk(producer: Producer, topic: str, id: str) -> int | None:
    """The number of records in the producer's last chunk; None if unknown."""
    receipt = producer.last_receipt
    if receipt is None:
        return None
    if any(ack.topic != topic for ack in receipt.acks):
        raise UserError(
            f"Producer {id!r} has written to topic {receipt.acks[0].topic!r}",
            hint=f"Use another --producer-id for topic {topic!r}",
        )
    return receipt.records or None


def _chunks(lines: Iterable[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """Numbered lines, in chunks that depend only on the lines."""
    chunk: list[tuple[int, bytes]] = []
    size = 0
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        chunk.append((number, line))
        size += len(line)
        if len(chunk) == CHUNK_LINES or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _sent(
    send: Callable[..., Delivery],
    source: Source,
    tally: Tally,
    bad: BadLines,
    numbers: Iterable[int] | None = None,
) -> Iterator[tuple[int, Delivery]]:
    """Send line by line; yield the number and the delivery of each accepted line."""
    topic, read = source.topic, source.read
    counted: Iterable[tuple[int, Any]] = (
        enumerate(source.lines, 1) if numbers is None else zip(numbers, source.lines, strict=True)
    )
    for number, line in counted:
        tally.bytes += len(line)
        if line.isspace():
            continue
        try:
            value, key, headers, partition = read(line)
            delivery = send(topic, value, key, headers, partition)
        except _REFUSALS as error:
            if bad.take(number, line, error):
                tally.skipped += 1
                continue
            tally.refused = number
            where = f"{source.name}, line {number}"
            raise type(error)(
                f"{where}: {error.message}", hint=error.hint, **error.details, line=number
            ) from None
        tally.sent += 1
        yield number, delivery
