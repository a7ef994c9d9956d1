"""The picture of the flow of events through headrace, with existing parts only."""

from __future__ import annotations

from tests.docs.svg import BLUE, GREEN, GREY, INK, ORANGE, Sheet

_HEIGHT = 52


def flow() -> Sheet:
    """Services, the log, a pipeline, and its views and topics."""
    sheet = Sheet(860, 232, "Services write to the log; a pipeline on Spark makes views and topics")
    middle = 116
    _box(sheet, 20, middle, 150, "services", "Python, or the CLI", GREY)
    _box(sheet, 222, middle, 170, "log", "a folder, or Kafka", BLUE)
    _box(sheet, 444, middle, 170, "pipeline", "Python or SQL, on Spark", GREEN)
    outputs = [
        ("views", "tables, read with SQL", GREEN),
        ("topics", "results, alerts", BLUE),
        ("topics", "late rows, dead letters", ORANGE),
    ]
    _arrow(sheet, (172, middle), (218, middle))
    _arrow(sheet, (394, middle), (440, middle))
    for row, (name, what, colour) in zip((44, middle, 188), outputs, strict=True):
        _box(sheet, 666, row, 174, name, what, colour)
        _arrow(sheet, (616, middle), (662, row))
    sheet.text(307, 162, "keeps every event, to be", size=12, colour=GREY, anchor="middle")
    sheet.text(307, 178, "read again at any time", size=12, colour=GREY, anchor="middle")
    sheet.text(529, 162, "rows = counted + late", size=12, colour=GREY, anchor="middle")
    sheet.text(529, 178, "+ filtered + dead", size=12, colour=GREY, anchor="middle")
    return sheet


def _box(
    sheet: Sheet, x: float, middle: float, width: float, name: str, what: str, colour: str
) -> None:
    sheet.bar(x, middle - _HEIGHT / 2, width, _HEIGHT, colour)
    sheet.text(x + width / 2, middle - 3, name, size=15, anchor="middle", bold=True)
    sheet.text(x + width / 2, middle + 15, what, size=12, colour=INK, anchor="middle")


def _arrow(sheet: Sheet, start: tuple[float, float], end: tuple[float, float]) -> None:
    x, y = end
    bend = (start[0] + x) / 2
    sheet.line([start, (bend, start[1]), (bend, y), end], GREY)
    sheet.line([(x - 7, y - 5), end, (x - 7, y + 5)], GREY)
