"""Objects of JSON as other programs might write them: right, nearly right, and garbage."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from hypothesis import strategies as st

COLUMNS = (
    "text string, tiny tinyint, small smallint, whole int, long bigint, real double, flag boolean, "
    "at timestamp, local timestamp_ntz, day date, money decimal(10,2), raw binary, "
    "list array<decimal(10,2)>, place struct<at: timestamp, raw: binary, tags: array<string>>"
)

_NUMBERS = [
    "0", "-0", "1", "127", "128", "-129", "32767", "32768", "2147483648", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "1.0", "1.5", "1e2", "1E+2", "-0.0", "0.1",
    "1e400", "1e-400", "1e-5000", "5e-324", "1.7976931348623157e308", "12345678.90", "123456789.5",
    "1.555", "1.005", "100000000000000000000.123456789", "NaN", "Infinity", "-Infinity", "Inf",
    "-NaN", "01", "+1", ".5", "5.", "1e", "0x1", "1" + "0" * 30, "9" * 400,
]  # fmt: skip
_TIMES = [
    "2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "2026-01-31T12:00:00.5Z",
    "2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00.1234567Z", "2026-01-31T12:00:00+02:00",
    "2026-01-31T12:00:00-0200", "2026-01-31T12:00:00+17:59", "2026-01-31T12:00:00+18:30",
    "2026-01-31T12:00:00-00:00", "2026-01-31 12:00:00", "2026-01-31 12:00:00.25Z",
    "2026-01-31T12:00:00 Z", "2026-01-31T12", "2026-01-31T12:00", "2026-01-31", "2026-1-3",
    "20260131", "2026-W01-1", "2026", "0000-01-01", "0000-01-01T00:00:00Z", "0001-01-01",
    "0001-01-01T00:00:00+01:00", "1969-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999-01:00", "2026-02-30", "2026-02-30T00:00:00Z",
    "2026-01-31T24:00:00Z", "2026-01-31T23:59:60Z", "2026-01-31T12:00:00.Z",
    "2026-01-31t12:00:00z",
]  # fmt: skip
_TEXTS = [
    "", "a", "é", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\udc00", "\\u0000", "a\\nb", "a\nb",
    "\\x", "\\/", "1", "true", "NaN", "Infinity", ": NaN, Infinity", "}{", "}\\n{", "\\\"", "０",
    "AP8=", "AP9=", "AP8", "A===", "QUJD", "QU\\nJD", "1.50", "1,5", " 1", "1_000", "1e1", "+1.5",
    "99999999.99", "999999999.99", "-0",
]  # fmt: skip


def _quoted(texts: Iterable[str]) -> st.SearchStrategy[str]:
    return st.sampled_from([f'"{text}"' for text in texts])


_NUMBER = st.sampled_from(_NUMBERS) | st.integers().map(str) | st.floats().map(json.dumps)
_TEXT = _quoted(_TEXTS) | st.text(max_size=5).map(json.dumps)
_TIME = _quoted(_TIMES) | st.datetimes().map(lambda found: f'"{found.isoformat()}Z"')
_BASE64 = st.binary(max_size=4).map(lambda found: json.dumps(base64.b64encode(found).decode()))
_CENTS = st.decimals(-(10**8) + 1, 10**8 - 1, places=2).map(str)
_MONEY = _NUMBER | _TEXT | _CENTS | _CENTS.map(json.dumps)


_ODD = st.sampled_from(["null", "true", "false", "nul", "None", "[]", "{}", "[1]", '{"at": null}'])
_ANY = _ODD | _NUMBER | _TEXT | _TIME


def _list(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(items, max_size=3).map(lambda found: f"[{','.join(found)}]")


def _object(
    fields: dict[str, st.SearchStrategy[str]], more: st.SearchStrategy[str]
) -> st.SearchStrategy[str]:
    """Objects with some of these fields; now and then one is twice there, or of another type."""
    names = st.sampled_from(list(fields))
    right = names.flatmap(lambda name: fields[name].map(lambda value: (name, value)))
    pair = st.one_of(right, right, right, right, st.tuples(more, _ANY))
    unique = st.lists(pair, max_size=6, unique_by=lambda found: found[0])
    space = st.sampled_from(["", "", " ", "\n", "\r\n\t"])
    return st.builds(_joined, st.one_of(unique, unique, st.lists(pair, max_size=4)), space)


def _joined(pairs: list[tuple[str, str]], space: str) -> str:
    inner = f",{space}".join(f'"{name}"{space}:{space}{value}' for name, value in pairs)
    return f"{{{space}{inner}{space}}}"


_PLACE = _object({"at": _TIME, "raw": _BASE64, "tags": _list(_TEXT)}, st.sampled_from(["at", "x"]))
_FIELDS = {
    "text": _TEXT,
    "tiny": _NUMBER,
    "small": _NUMBER,
    "whole": _NUMBER,
    "long": _NUMBER,
    "real": _NUMBER,
    "flag": st.sampled_from(["true", "false", "null"]),
    "at": _TIME,
    "local": _TIME,
    "day": _TIME | st.dates().map(lambda found: f'"{found}"'),
    "money": _MONEY,
    "raw": _BASE64,
    "list": _list(_MONEY),
    "place": _PLACE,
}
_NAMES = st.sampled_from([*_FIELDS, "x", "tex\\u0074", "Text", "", "at "])
_WHOLE = _object(_FIELDS, _NAMES).map(lambda text: text.encode("utf-8", "surrogatepass"))
_NOISE = st.sampled_from(list(b'{}[]",:\n 0\\eE-.\xff\x00\xef\xbb\xbf'))


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """An object in which some bytes were changed, dropped or added."""
    data = bytearray(draw(_WHOLE))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 1))] = bytes(draw(st.lists(_NOISE, max_size=2)))
    return bytes(data)


_FRAMED = st.builds(
    lambda a, b, how: how(a, b),
    _WHOLE,
    _WHOLE,
    st.sampled_from(
        [
            lambda a, b: a + b,
            lambda a, b: a + b"\n" + b,
            lambda a, b: b"[" + a + b"]",
            lambda a, b: b"\xef\xbb\xbf" + a,
            lambda a, b: b" " + a + b"\n",
            lambda a, b: a[:-1],
            lambda a, b: b[1:],
        ]
    ),
)
_BARE = st.sampled_from([b"", b"{}", b"{}{}", b"{", b"}", b"[1]", b"null", b'"x"', b"1"])
_DEEP = st.sampled_from([3, 350, 600, 3000]).map(
    lambda depth: b'{"x":' + b"[" * depth + b"]" * depth + b"}"
)

VALUES = st.one_of(_WHOLE, _WHOLE, _WHOLE, _WHOLE, _damaged(), _FRAMED, st.binary(), _BARE, _DEEP)
"""Values of records; most are objects of the columns."""
