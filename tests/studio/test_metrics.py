"""Metrics for Prometheus, and the dashboard and alert rules that name them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headrace.log import Log, open_log
from headrace.studio.live.metrics import METRICS, UP, Metric, text_of
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings
from tests.studio.piped import APP, VIEW, process, settings_of, visits, write
from tests.waiting import wait_until

OPS = Path(__file__).parents[2] / "ops"
NAMES = {metric.name for metric in METRICS}
LINE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? (-?\d+(?:\.\d+)?)')


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with open_log(f"file:{tmp_path_factory.mktemp('metrics') / 'log'}") as log:
        write(log, visits(200))
        process(log)
        write(log, visits(40, start=200))
        with log.consumer("pageviews", group="readers") as consumer:
            wait_until(consumer.poll)
            consumer.commit()
        yield log


@pytest.fixture(scope="module")
def text(log: Log, tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = settings_of(log, tmp_path_factory.mktemp("runner"))
    with TestClient(studio(settings), base_url=settings.origin) as client:
        answer = client.get("/metrics")  # without a token, as a scraper asks on loopback
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return answer.text


def values(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and labels. Each line is one, or a comment."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match is not None, line
            found[match[1], match[2] or ""] = float(match[3])
    return found


def test_the_numbers_are_those_of_the_log_and_its_pipelines(log: Log, text: str) -> None:
    found = values(text)
    step = f'app="{APP}",step="{VIEW}"'
    assert found["headrace_up", ""] == 1
    assert found["headrace_topic_records", 'topic="pageviews",partition="0"'] == 240
    assert found["headrace_rows_total", f'{step},outcome="counted"'] == 200
    assert found["headrace_rows_total", f'{step},outcome="late"'] == 0
    assert found["headrace_step_lag_rows", step] == 40
    assert found["headrace_watermark_seconds", step] == 1767268889.5
    group = 'consumergroup="readers",topic="pageviews",partition="0"'
    assert found["kafka_consumergroup_lag", group] == log.group("readers").lag


def test_each_metric_is_explained_once_before_its_samples(text: str) -> None:
    helped = re.findall(r"^# HELP (\w+) \S", text, re.M)
    assert helped == [metric.name for metric in METRICS]
    for name, _ in values(text):
        assert name in helped


def test_a_log_that_is_not_there_is_down_and_not_an_error() -> None:
    settings = StudioSettings(log="file:/nowhere")
    with TestClient(studio(settings), base_url=settings.origin) as client:
        answer = client.get("/metrics")
    assert (answer.status_code, values(answer.text)) == (200, {("headrace_up", ""): 0})


def test_labels_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    text = text_of([(UP, {"topic": odd}, 1)])
    assert 'headrace_up{topic="a\\"b\\\\c\\nd"} 1' in text
    assert len(values(text)) == 1


def test_every_metric_of_the_dashboard_and_the_alerts_exists() -> None:
    dashboard = json.loads((OPS / "grafana-dashboard.json").read_text())
    asked = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", ())]
    asked += [expression for _, expression in _rules()]
    assert len(asked) >= 12
    for expression in asked:
        named = set(re.findall(r"\b((?:headrace|kafka)_\w+)", expression))
        assert named, expression
        assert named <= NAMES, expression


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    for rule, _ in _rules():
        assert re.search(r"^ {10}summary: \S", rule, re.M), rule
        assert re.search(r"^ {10}description: \S", rule, re.M), rule


def _rules() -> list[tuple[str, str]]:
    """Each alert rule as text, and its expression."""
    _, *rules = re.split(r"^ {6}- alert: ", (OPS / "alerts.yaml").read_text(), flags=re.M)
    return [(rule, re.findall(r"^ {8}expr: (.+)$", rule, re.M)[0]) for rule in rules]


def test_names_are_those_that_prometheus_allows() -> None:
    for metric in METRICS:
        assert isinstance(metric, Metric)
        assert re.fullmatch(r"[a-z_]+", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith(("_total", "_offset"))
