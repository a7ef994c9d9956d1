"""The check at the end: every store against the database, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from headrace.application.verify.result import Verified
from headrace.cli.demonstration.catalog.play import Accident, Outage, Play
from headrace.cli.demonstration.catalog.shop import Shop
from headrace.cli.demonstration.check import Finding, conserved
from headrace.log import Log
from headrace.pipeline.app import App
from headrace.store.contract import Store, StoredView
from headrace.store.following import followed_in

_SOURCES = {
    "products": "SELECT sku, name, description, price, stock FROM products",
    "orders": """
        SELECT id, customer, sku, pieces, name AS product_name,
            description AS product_description, price AS product_price, stock AS product_stock
        FROM orders LEFT JOIN products USING (sku)""",
}
"""The rows of each view, as the database itself computes them."""


@dataclass(frozen=True)
class Account:
    """The result of the demo."""

    log: str
    seconds: float
    writes: int
    findings: Sequence[Finding]
    outage: Outage | None
    accident: Accident | None
    most_behind: Mapping[str, int]

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "log": self.log,
            "seconds": round(self.seconds, 3),
            "writes": self.writes,
            "holds": self.holds,
            "outage": None if self.outage is None else asdict(self.outage),
            "accident": None if self.accident is None else asdict(self.accident),
            "most_behind": dict(self.most_behind),
            "findings": [asdict(finding) for finding in self.findings],
        }


def account(log: Log, app: App, shop: Shop, play: Play) -> Account:
    """Compare every store with the database, and sum up."""
    findings = [
        as_in_the_database(followed.view, store, shop)
        for view in app.views.values()
        for store in view.stores
        if isinstance(store, Store)
        and (followed := followed_in(log, app.name, view.name, store.form)) is not None
    ]
    if (outage := play.outage) is not None:
        findings.append(
            Finding(
                "changes that the killed follower missed, and has now",
                outage.missed >= outage.cheaper > 0,
                outage.missed,
                f"the other stores were at most {outage.others:,} behind meanwhile",
            )
        )
    if (accident := play.accident) is not None:
        findings.append(_brought_back(shop, accident))
    findings.append(_verified(play.verified))
    findings += [conserved(step.law, f"changes read by step {step.step!r}") for step in play.steps]
    scene = play.scene()
    most = {name: store.most for name, store in scene.stores.items()}
    return Account(log.url, play.seconds, shop.writes, findings, outage, accident, most)


def as_in_the_database(view: StoredView, store: Store, shop: Shop) -> Finding:
    """A store has exactly the rows of the database."""
    names, wanted = shop.query(_SOURCES[view.name])
    with store.live(view) as table:
        rows = [row for batch in table.read() for row in _rows(batch, names)]
    missing, extra = set(wanted) - set(rows), set(rows) - set(wanted)
    kind = store.address.partition(":")[0]
    return Finding(
        f"{view.name} in {kind}",
        not missing and not extra and len(rows) == len(wanted),
        len(rows),
        f"{len(wanted):,} in the database, {len(missing):,} missing, {len(extra):,} extra",
    )


def _rows(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _brought_back(shop: Shop, accident: Accident) -> Finding:
    _, ((there,),) = shop.query("SELECT count(*) FROM products")
    return Finding(
        "products deleted by mistake, and back",
        there == shop.products and accident.back > 0,
        accident.deleted,
        f"{there:,} products of {shop.products:,} in the database",
    )


def _verified(found: Sequence[Verified]) -> Finding:
    hops = [hop for each in found for hop in each.hops]
    return Finding(
        "hops that headrace verify compared",
        bool(hops) and all(hop.proven for hop in hops),
        len(hops),
        f"{sum(hop.differences for hop in hops):,} differences",
    )
