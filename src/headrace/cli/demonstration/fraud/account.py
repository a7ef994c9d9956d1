"""The check at the end: the alerts against the recount and against the truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from headrace.cli.demonstration.check import Finding, conserved
from headrace.cli.demonstration.fraud.recount import FAST, Alert, Recount, Use
from headrace.cli.demonstration.fraud.traffic import Incident
from headrace.plan.law import Law

_HOUR = 3_600_000_000


@dataclass(frozen=True)
class Score:
    """The score of a rule, against the transactions that it should have flagged."""

    rule: str
    alerts: int
    meant: int
    right: int

    @property
    def precision(self) -> float:
        return self.right / self.alerts if self.alerts else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.meant if self.meant else 1.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "precision": self.precision, "recall": self.recall}


@dataclass(frozen=True)
class Passed:
    """Fraud that got through: transactions and money."""

    transactions: int = 0
    money: Decimal = Decimal(0)

    def __add__(self, other: Passed) -> Passed:
        return Passed(self.transactions + other.transactions, self.money + other.money)

    def to_json(self) -> dict[str, Any]:
        return {"transactions": self.transactions, "money": float(self.money)}


@dataclass(frozen=True)
class Picture:
    """All fraud, and what an hourly batch and the alerts let through."""

    incidents: int
    caught: int
    all: Passed
    hourly: Passed
    alerted: Passed

    def to_json(self) -> dict[str, Any]:
        kinds = {name: getattr(self, name).to_json() for name in ("all", "hourly", "alerted")}
        return {"incidents": self.incidents, "caught": self.caught, **kinds}


@dataclass(frozen=True)
class Account:
    """The result of the demo."""

    log: str
    written: int
    seconds: float
    findings: Sequence[Finding]
    rules: Sequence[Score]
    fraud: Score
    """Transactions that any rule has flagged, against those that are fraud."""
    picture: Picture
    latency: Mapping[str, float] = field(default_factory=dict)
    """From a transaction in the log to its alert in the log, in seconds."""

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "log": self.log,
            "events": self.written,
            "seconds": round(self.seconds, 3),
            "holds": self.holds,
            "findings": [asdict(finding) for finding in self.findings],
            "rules": [rule.to_json() for rule in self.rules],
            "fraud": self.fraud.to_json(),
            "let_through": self.picture.to_json(),
            "latency": {name: round(value, 3) for name, value in self.latency.items()},
        }


def findings(
    law: Law, again: Recount, alerts: Sequence[Alert], late: Sequence[str], written: int
) -> list[Finding]:
    """Verify everything that the demo promises."""
    rows = len(again.uses) + len(again.late)
    ids = {alert.id for alert in alerts}
    made = [
        Finding(
            "transactions read", law.rows == rows >= written, law.rows, f"{rows:,} in the segments"
        ),
        conserved(law, "transactions"),
        Finding(
            "late transactions in fraud.late",
            sorted(late) == sorted(again.late) and law.late == len(late),
            len(late),
            f"{len(again.late):,} in the recount",
        ),
        Finding(
            "alerts without duplicates",
            len(ids) == len(alerts),
            len(alerts),
            f"{len(alerts) - len(ids):,} repeated",
        ),
    ]
    for score in rule_scores(again, alerts):
        missing, more = score.meant - score.right, score.alerts - score.right
        # A late event can remove the reason for an alert that is already published.
        exact = not more or score.rule == FAST
        remark = f"{score.meant:,} in the recount, {missing:,} missing, {more:,} extra"
        made.append(
            Finding(f"flagged as {score.rule}", not missing and exact, score.alerts, remark)
        )
    return made


def rule_scores(again: Recount, alerts: Sequence[Alert]) -> list[Score]:
    """The scores of the rules in the recount."""
    flagged: dict[str, set[str]] = defaultdict(set)
    for alert in alerts:
        flagged[alert.rule].add(alert.transaction)
    return [
        Score(rule, len(flagged[rule]), len(meant), len(flagged[rule] & meant))
        for rule, meant in again.flagged.items()
    ]


def fraud_score(
    again: Recount, alerts: Sequence[Alert], truth: Mapping[str, Incident], rule: str = "any rule"
) -> Score:
    """The score of all alerts, against the fraud that was not late."""
    flagged = {alert.transaction for alert in alerts}
    meant = {transaction for transaction in truth if transaction in again.uses}
    return Score(rule, len(flagged), len(meant), len(flagged & meant))


def picture(again: Recount, alerts: Sequence[Alert], truth: Mapping[str, Incident]) -> Picture:
    """The fraud that gets through with an hourly batch and with alerts.

    The first alert on a fraudulent transaction blocks its card: with an hourly batch at the next
    full hour, with alerts after the latency of the alert. Fraud before that gets through.
    """
    first: dict[int, tuple[int, float]] = {}
    for alert in alerts:
        if alert.transaction in truth and alert.transaction in again.uses:
            number, at = truth[alert.transaction].number, again.uses[alert.transaction].at
            first[number] = min(first.get(number, (at, alert.latency)), (at, alert.latency))
    incidents: dict[int, list[Use]] = defaultdict(list)
    for transaction, incident in truth.items():
        if transaction in again.uses:
            incidents[incident.number].append(again.uses[transaction])
    whole = hourly = alerted = Passed()
    for number, uses in incidents.items():
        whole += _passed(uses, None)
        found = first.get(number)
        hourly += _passed(uses, found and -(-found[0] // _HOUR) * _HOUR)
        alerted += _passed(uses, found and found[0] + int(found[1] * 1_000_000))
    return Picture(len(incidents), len(first), whole, hourly, alerted)


def percentiles(alerts: Sequence[Alert]) -> dict[str, float]:
    """Percentiles of the latency of alerts, in seconds."""
    if not alerts:
        return {}
    took = np.array([alert.latency for alert in alerts])
    return {f"p{share}": float(np.percentile(took, share)) for share in (50, 95, 99)}


def _passed(uses: Sequence[Use], until: int | None) -> Passed:
    through = [use for use in uses if until is None or use.at <= until]
    return Passed(len(through), sum((use.amount for use in through), Decimal(0)))
