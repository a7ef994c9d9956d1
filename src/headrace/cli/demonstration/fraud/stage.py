"""Set up the fraud demo: a log, cards, the pipeline, and the check at the end."""

from __future__ import annotations

from headrace.cli.demonstration.fraud.account import (
    Account,
    findings,
    fraud_score,
    percentiles,
    picture,
    rule_scores,
)
from headrace.cli.demonstration.fraud.play import ALERTS, LATE, PROFILES, TRANSACTIONS, Play
from headrace.cli.demonstration.fraud.recount import alerts_in, recount
from headrace.cli.demonstration.fraud.screen import draw, plain_line
from headrace.cli.demonstration.fraud.traffic import Traffic, traffic
from headrace.cli.demonstration.generator import Generator, Plan, start_after
from headrace.cli.demonstration.recount import stored_rows
from headrace.cli.demonstration.stage import pipeline_file, shown
from headrace.cli.loading import load_app
from headrace.clock import SECOND, SystemClock, micros
from headrace.log import Log, open_log
from headrace.log.home import folder_of
from headrace.operators.alerts.declare import Alerts
from headrace.pipeline.app import App

_HOUR = 3600 * SECOND
_ONCE_SPAN, _LIVE_SPAN = 3 * _HOUR, 24 * _HOUR
_RATE, _COMMITS_PER_SECOND = 1_000, 20
_FIRST = 20
"""Transactions that are written before the rest, for Spark to start with."""


def perform(url: str, *, events: int, once: bool, quiet: bool) -> Account:
    """Run the demo on a log, and verify it at the end."""
    pipeline = load_app(f"{pipeline_file('fraud.py')}:app")
    with open_log(url) as log:
        for topic in (TRANSACTIONS, PROFILES):
            log.ensure_topic(pipeline.topics[topic])
        span = _ONCE_SPAN if once else _LIVE_SPAN
        start = start_after(SystemClock().now(), log.frontier(TRANSACTIONS))
        made = traffic(events, start, span)
        first = made.transactions.slice(0, _FIRST)
        play = Play(log, pipeline, _generator(log, pipeline, made), first.num_rows)
        with log.producer() as producer:
            producer.append(PROFILES, made.profiles)
            producer.append(TRANSACTIONS, first)
        with shown(play.scene, draw, plain_line, quiet=quiet):
            play.run()
        return _account(log, pipeline, play, made)


def _generator(log: Log, pipeline: App, made: Traffic) -> Generator:
    rest = max(0, made.transactions.num_rows - _FIRST)
    plan = Plan(rest, _RATE, _RATE // _COMMITS_PER_SECOND, made.start, made.span // max(1, rest))
    topic = pipeline.topics[TRANSACTIONS]
    return Generator(log.url, topic, plan, rows=lambda plan, _: made.tables(_FIRST, plan.chunk))


def _account(log: Log, pipeline: App, play: Play, made: Traffic) -> Account:
    folder, step = folder_of(log.url), pipeline.outputs[ALERTS].stream
    assert isinstance(step, Alerts)
    again = recount(folder, TRANSACTIONS, micros(step.within), micros(step.delay))
    alerts = alerts_in(folder, ALERTS)
    stored = stored_rows(folder, LATE)
    late = stored.column("transaction").to_pylist() if stored.num_rows else []
    # A log that was kept also has correct alerts of earlier demos, which do not count here.
    mine = [alert for alert in alerts if play.warm is not None and alert.appended >= play.warm]
    return Account(
        log.url,
        play.written,
        play.seconds,
        findings(play.law.law, again, alerts, late, play.written),
        rule_scores(again, alerts),
        fraud_score(again, mine, made.truth),
        picture(again, mine, made.truth),
        percentiles(mine),
    )
