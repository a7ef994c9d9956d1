"""Row images of the binlog: the packed values of one column after another.

The package that reads the binlog decodes them too, but not exactly: it has None for 0000-00-00, for
an empty set and for an unknown label, and drops the sign of fractions of a time. Here the values
are those that a SELECT gives.
"""

from __future__ import annotations

import codecs
import ipaddress
import struct
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headrace.cdc.contract import UNCHANGED, Row
from headrace.errors import SourceError

Decoder = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at a place in the bytes, and returns it and the place after it."""

LATIN1: Final = "latin1"
_LATIN1: Final = "".join(bytes([one]).decode("cp1252", "ignore") or chr(one) for one in range(256))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""The bytes that so many decimal digits take."""


def read_images(data: bytes, decoders: Sequence[Decoder], present: Sequence[bytes]) -> list[Row]:
    """Every row image of an event, one after the other.

    `present` has the bitmap of the columns in the images: one, or two for the rows of an update,
    before and after. A column that is left out of an image is `UNCHANGED`.
    """
    patterns = [_places(bits, decoders) for bits in present]
    at, end, turn, rows = 0, len(data), 0, []
    while at < end:
        sent = patterns[turn % len(patterns)]
        nulls = int.from_bytes(data[at : at + (len(sent) + 7) // 8], "little")
        at += (len(sent) + 7) // 8
        values: list[Any] = [UNCHANGED] * len(decoders)
        for bit, (place, decode) in enumerate(sent):
            if nulls >> bit & 1:
                values[place] = None
            else:
                values[place], at = decode(data, at)
        rows.append(tuple(values))
        turn += 1
    return rows


def _places(present: bytes, decoders: Sequence[Decoder]) -> list[tuple[int, Decoder]]:
    bits = int.from_bytes(present, "little")
    return [(place, decode) for place, decode in enumerate(decoders) if bits >> place & 1]


def number(form: str, *, text: bool = False) -> Decoder:
    """Decode a number of a fixed size; as text if it may be too large to store."""
    packed = struct.Struct("<" + form)
    size, unpack = packed.size, packed.unpack_from
    if text:
        return lambda data, at: (str(unpack(data, at)[0]), at + size)
    return lambda data, at: (unpack(data, at)[0], at + size)


def medium(signed: bool) -> Decoder:
    """Decode an integer of three bytes."""
    return lambda data, at: (int.from_bytes(data[at : at + 3], "little", signed=signed), at + 3)


def year(data: bytes, at: int) -> tuple[int, int]:
    return (data[at] + 1900 if data[at] else 0), at + 1


def bits(count: int) -> Decoder:
    size = (count + 7) // 8
    if count == 64:
        return lambda data, at: (str(int.from_bytes(data[at : at + 8], "big")), at + 8)
    return lambda data, at: (int.from_bytes(data[at : at + size], "big"), at + size)


def raw(prefix: int, padded: int = 0) -> Decoder:
    """Decode bytes after their length, padded with zeros, which the binlog leaves out."""

    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        start = at + prefix
        end = start + int.from_bytes(data[at:start], "little")
        return data[start:end].ljust(padded, b"\0"), end

    return decode


def text(prefix: int, codec: str) -> Decoder:
    """Decode text. The server's latin1 is Windows's, with a character for each byte."""

    def decode(data: bytes, at: int) -> tuple[str, int]:
        start = at + prefix
        end = start + int.from_bytes(data[at:start], "little")
        if codec == LATIN1:
            return codecs.charmap_decode(data[start:end], "strict", _LATIN1)[0], end
        return data[start:end].decode(codec), end

    return decode


def label(size: int, labels: Sequence[str]) -> Decoder:
    """Decode an ENUM. Its number 0 is the empty text of an impossible value."""
    values = ("", *labels)
    return lambda data, at: (values[int.from_bytes(data[at : at + size], "little")], at + size)


def labels(size: int, known: Sequence[str]) -> Decoder:
    """Decode a SET as text with commas."""

    def decode(data: bytes, at: int) -> tuple[str, int]:
        chosen = int.from_bytes(data[at : at + size], "little")
        return ",".join(one for bit, one in enumerate(known) if chosen >> bit & 1), at + size

    return decode


def decimal(precision: int, scale: int) -> Decoder:
    """Decode a decimal as text: groups of nine digits in four bytes, inverted if negative."""
    whole, fraction = precision - scale, scale
    sizes = [(_DIGIT_BYTES[whole % 9], whole % 9)] if whole % 9 else []
    sizes += [(4, 9)] * (whole // 9 + fraction // 9)
    sizes += [(_DIGIT_BYTES[fraction % 9], fraction % 9)] if fraction % 9 else []
    total = sum(size for size, _ in sizes)
    filled = (1 << 8 * total) - 1
    sign = 1 << (8 * total - 1)

    def decode(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + total], "big")
        negative = not packed & sign
        packed = ((packed ^ filled) if negative else packed) ^ sign
        shift, digits = 8 * total, []
        for size, count in sizes:
            shift -= 8 * size
            digits.append(f"{packed >> shift & ((1 << 8 * size) - 1):0{count}d}")
        joined = "".join(digits)
        units = joined[:whole].lstrip("0") or "0"
        point = f".{joined[whole:]}" if scale else ""
        return f"{'-' if negative else ''}{units}{point}", at + total

    return decode


def day(data: bytes, at: int) -> tuple[str, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}", at + 3


def moment(digits: int) -> Decoder:
    """Decode a DATETIME."""
    size = (digits + 1) // 2

    def decode(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - (1 << 39)
        months, rest = packed >> 22, packed & 0x3FFFFF
        date = f"{months // 13:04d}-{months % 13:02d}-{rest >> 17:02d}"
        clock = f"{rest >> 12 & 31:02d}:{rest >> 6 & 63:02d}:{rest & 63:02d}"
        at += 5
        fraction = int.from_bytes(data[at : at + size], "big")
        return f"{date} {clock}{_fraction(fraction, digits)}", at + size

    return decode


def instant(digits: int) -> Decoder:
    """Decode a TIMESTAMP, in UTC. Zero is the impossible moment, not 1970."""
    size = (digits + 1) // 2

    def decode(data: bytes, at: int) -> tuple[str, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        at += 4
        fraction = int.from_bytes(data[at : at + size], "big")
        if seconds:
            found = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
        else:
            found = "0000-00-00 00:00:00"
        return found + _fraction(fraction, digits), at + size

    return decode


def duration(digits: int) -> Decoder:
    """Decode a TIME: up to 838 hours, before or after midnight."""
    size = (digits + 1) // 2
    width = 8 * (3 + size)

    def decode(data: bytes, at: int) -> tuple[str, int]:
        end = at + 3 + size
        packed = int.from_bytes(data[at:end], "big") - (1 << (width - 1))
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        fraction, packed = packed & ((1 << 8 * size) - 1), packed >> 8 * size
        clock = f"{packed >> 12:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"
        return f"{sign}{clock}{_fraction(fraction, digits)}", end

    return decode


def _fraction(stored: int, digits: int) -> str:
    """A fraction of a second. It is stored in whole bytes, of two digits each."""
    if not digits:
        return ""
    return f".{stored:0{digits + digits % 2}d}"[: digits + 1]


def identifier(data: bytes, at: int) -> tuple[str, int]:
    """Decode a UUID."""
    end = at + 1 + data[at]
    return str(uuid.UUID(bytes=data[at + 1 : end].ljust(16, b"\0"))), end


def host(size: int) -> Decoder:
    """Decode an address of the internet."""

    def decode(data: bytes, at: int) -> tuple[str, int]:
        length = data[at]
        packed = data[at + 1 : at + 1 + length].ljust(size, b"\0")
        return str(ipaddress.ip_address(packed)), at + 1 + length

    return decode


def refused(table: str, column: str, kind: int) -> SourceError:
    return SourceError(
        f"the binlog has the column {column!r} of {table} in a form that cannot be read "
        f"(type {kind})",
        hint="Old forms of dates and times change with ALTER TABLE ... FORCE; compressed columns "
        "cannot be captured",
    )
