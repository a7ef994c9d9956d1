"""The top N explained. Everything except the ranking comes from its aggregation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from headrace.log import Log
from headrace.operators.contract import Fact, Operator, Refusal, Term, listed
from headrace.operators.top.declare import Top
from headrace.operators.window.operator import WindowOperator, published_panes
from headrace.pipeline.output import Output

_windows = WindowOperator()


def _shown(value: list[str]) -> str:
    n, by, *within = value
    return f"the top {n} by {by!r}" + (f" within {', '.join(within)}" if within else "")


class TopOperator(Operator[Top]):
    """The highest results of each window."""

    package = "headrace.operators.top"
    in_python = True
    terms: ClassVar[Mapping[str, Term]] = {"top": Term("ranking", _shown)}

    def facts(self, stream: Top, log: Log | None) -> list[Fact]:
        among = listed(stream.group) if stream.group else "board"
        ranked = f"the {stream.n} with the highest {stream.by} of each {among}"
        return [*_windows.facts(stream.of, log), ("ranks", ranked)]

    def published(self, output: Output) -> str:
        assert isinstance(output.stream, Top)
        return published_panes(output, output.stream.emit)

    def refuses_real_time(self, stream: Top) -> Refusal | None:
        return _windows.refuses_real_time(stream.of)

    def final_after(self, stream: Top) -> timedelta | None:
        return _windows.final_after(stream.of)
