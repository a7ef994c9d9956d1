"""All pictures of the docs; `scripts/pictures` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.docs import capture_pictures, flow_picture, join_pictures, pictures, state_picture
from tests.docs import how_to_pictures as how_to
from tests.docs.terminal import terminal

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


class Picture(Protocol):
    """A picture that can be drawn as SVG."""

    def svg(self) -> str: ...


PICTURES: dict[str, Callable[[], Picture]] = {
    "arrival": pictures.arrival,
    "dual-writes": capture_pictures.dual_writes,
    "flow": flow_picture.flow,
    "joins": join_pictures.joins,
    "lag": how_to.lag,
    "late": pictures.late,
    "leaderboard": pictures.leaderboard,
    "panes": pictures.panes,
    "rebuild": how_to.rebuild,
    "sql": how_to.sql,
    "state": state_picture.state,
    "terminal": terminal,
    "watermark": pictures.watermark,
    "windows": pictures.windows,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg())


if __name__ == "__main__":
    main()
