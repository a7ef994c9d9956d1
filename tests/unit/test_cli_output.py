"""Numbers, sizes and times in a readable format."""

from __future__ import annotations

import io
import sys

import pytest
import typer

from headrace.cli.options import confirm
from headrace.cli.output import moment
from headrace.errors import UserError
from headrace.wording import many, size, span


def test_sizes_have_a_unit_that_fits() -> None:
    assert [size(n) for n in (0, 1023, 1024, 64 << 20, 3 << 29, 5 << 40, 1 << 60)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "64.0 MiB",
        "1.5 GiB",
        "5.0 TiB",
        "1048576.0 TiB",
    ]


def test_spans_are_as_exact_as_is_of_use() -> None:
    assert [span(s) for s in (0, 1.26, 59, 119.6, 3600, 86_400, 864_000)] == [
        "0.0 s",
        "1.3 s",
        "59 s",
        "120 s",
        "60 min",
        "24 h",
        "10 d",
    ]


def test_moments_are_in_utc_with_the_digits_they_need() -> None:
    assert moment(None) is None
    assert moment(1_000_000) == "1970-01-01T00:00:01Z"
    assert moment(1_001_000) == "1970-01-01T00:00:01.001Z"
    assert moment(1_000_001) == "1970-01-01T00:00:01.000001Z"


def test_one_is_not_many() -> None:
    assert [many(n, "record") for n in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_is_asked_and_can_say_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    with pytest.raises(typer.Exit) as left:
        confirm("Delete it?", yes=False)
    assert left.value.exit_code == 1
    assert capsys.readouterr().err == "Delete it? [y/N]:Nothing was changed\n"


def test_a_person_is_asked_and_can_say_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    confirm("Delete it?", yes=False)
    assert capsys.readouterr().err == "Delete it? [y/N]:"


def test_where_nobody_can_be_asked_only_yes_is_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UserError) as refused:
        confirm("Delete it?", yes=False)
    assert refused.value.hint == "Add --yes to confirm"
    confirm("Delete it?", yes=True)
