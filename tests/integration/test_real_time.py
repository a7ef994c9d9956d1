"""Real time on a real broker: what comes out, and what is said of the rest."""

from __future__ import annotations

import importlib.util
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace import streams as hr
from headrace.broker import ClusterState
from headrace.clock import SystemClock, to_datetime
from headrace.log import open_log
from headrace.streams.stream import sources
from tests.live import Live, expected, once, rows_in
from tests.property.flagging import JUDGES

pytestmark = pytest.mark.service

APP = """
from datetime import timedelta
from headrace import streams as hr
from tests.property.flagging import RULES

app = hr.App("live")
visits = app.topic(
    "live.visits", schema="page string, tags array<string>, cost decimal(10, 2), at timestamp",
    key="page", event_time="at", partitions=2,
)
tagged = hr.explode(hr.filter(visits, "page <> 'bot'"), "tags", into="tag")
app.publish("live.tagged", hr.select(tagged, "page", "tag", "cost", "at"))

uses = app.topic(
    "live.uses", schema="use string, card string, n bigint, at timestamp", key="card",
    event_time="at", partitions=2,
)
alerts = hr.alerts(
    hr.filter(uses, "card <> 'test'"), by="card", event="use", within=timedelta(seconds=10),
    delay=timedelta(minutes=1), rules=RULES,
)
app.publish("live.alerts", alerts)
app.publish("live.late", alerts.late)
"""


def declared(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def uses(number: int, seed: int) -> list[dict[str, Any]]:
    """Uses of a few cards, some of them out of order and some too late."""
    some = random.Random(seed)
    now = to_datetime(SystemClock().now())
    return [
        {
            "use": f"{seed}-{i}",
            "card": some.choice(["a", "b", "c", "test"]),
            "n": some.choice([None, 0, 1, 2, 3]),
            "at": now - timedelta(seconds=some.choice([0, 1, 2, 5, 9, 120])),
        }
        for i in range(number)
    ]


def test_rows_come_out_as_the_oracle_says_and_nothing_is_dropped_in_silence(
    broker: ClusterState, tmp_path: Path
) -> None:
    file = tmp_path / "live_app.py"
    file.write_text(APP)
    step: hr.Alerts = declared(file).alerts
    live = Live(f"{file}:app", broker.url, tmp_path)
    with open_log(broker.url) as log:
        for source in sources(step):
            log.ensure_topic(source.topic)
        live.start()
        live.until(lambda: {"live.tagged", "live.late"} <= {t.name for t in log.topics()})
        at = to_datetime(SystemClock().now())
        with log.producer() as producer:
            for page, tags in (("a", ["x", "y"]), ("bot", ["x"]), ("b", []), ("c", None)):
                visit = {"page": page, "tags": tags, "cost": "1.10", "at": at}
                producer.send("live.visits", visit)
            producer.send("live.visits", {"page": "d", "tags": ["x"], "at": at + timedelta(days=1)})
            for use in uses(60, 1):
                producer.send("live.uses", use)
        raw = Producer({"bootstrap.servers": broker.servers})
        raw.produce("live.visits", b"{no json")
        raw.produce("live.visits", b"\xff\x00")
        raw.produce("live.visits", b'{"page": "e"}')
        raw.flush()
        meant = expected(log, step, JUDGES)
        ids = {alert["alert"] for alert in meant.alerts}
        assert ids
        assert meant.late
        live.until(lambda: ids <= once(rows_in(log, "live.alerts")).keys())
        live.until(lambda: len(rows_in(log, "live.late")) >= len(meant.late))
        live.until(lambda: len(rows_in(log, "live.dead")) >= 4)

        assert once(rows_in(log, "live.alerts")) == once(meant.alerts)
        late = {row["use"]: row for row in rows_in(log, "live.late")}
        assert late.keys() == {row["use"] for _, row, _ in meant.late}
        tagged = rows_in(log, "live.tagged")
        assert [(row["page"], row["tag"], str(row["cost"])) for row in tagged] == [
            ("a", "x", "1.10"),
            ("a", "y", "1.10"),
        ]
        dead = {row["row"]: row["reason"] for row in rows_in(log, "live.dead")}
        assert dead.pop("{no json") == "does not decode"
        assert dead.pop("FF00") == "does not decode"
        assert dead.pop('{"page": "e"}') == "no event time"
        assert list(dead.values()) == ["ahead of the clock"]
        said = live.stop()
        assert said.keys() == {"live.tagged", "live.alerts"}
        assert all(step["holds"] for step in said.values())
