"""Operations that need commits refuse a log without them, before they do anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.application.rebuild.rebuild import Rebuild
from headrace.application.verify.verify import Verification
from headrace.errors import Unsupported
from headrace.log import Log
from tests.conformance.limited import LimitedLog

MINUTE = timedelta(minutes=1)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LimitedLog(tmp_path / "log") as limited:
        yield limited


@pytest.fixture
def app() -> hr.App:
    app = hr.App("shop")
    orders = app.topic("orders", schema="item string, at timestamp", event_time="at")
    lateness = hr.Lateness(MINUTE, MINUTE)
    app.view(
        "sales",
        hr.aggregate(
            orders, by="item", window=hr.tumbling(MINUTE), lateness=lateness, sold=hr.count()
        ),
    )
    return app


@pytest.mark.parametrize(
    ("act", "lacking"),
    [
        (lambda app, log: Rebuild(app, "sales", log), "COMMITS"),
        (Verification, "NUMBERED_APPENDS"),
        (
            lambda app, log: hr.wait_for(app, "sales", commit=1, timeout=MINUTE, log=log),
            "NUMBERED_APPENDS",
        ),
    ],
    ids=["rebuild", "verify", "wait"],
)
def test_what_needs_commits_is_refused_without_them(
    app: hr.App, log: Log, act: Callable[[hr.App, Log], Any], lacking: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        act(app, log)
    assert caught.value.details["capability"] == lacking
    assert log.topics() == []
