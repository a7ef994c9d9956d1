"""The demo runs to its end by itself, and its recount detects a wrong count."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

from headrace.cli.demonstration.catalog.account import as_in_the_database
from headrace.cli.demonstration.catalog.shop import Shop
from headrace.cli.demonstration.check import check
from headrace.cli.demonstration.stage import pipeline_file
from headrace.cli.loading import load_app
from headrace.store import open_views
from headrace.store.contract import StoredView
from headrace.store.suite_views import changes_of, position_at
from pipelines.catalog import JsonFile
from tests.integration.test_cli_running import Cli, ended
from tests.waiting import left, started

EVENTS = 5_000


def test_the_demo_counts_page_views_and_the_recount_agrees(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "a folder with spaces")  # Java's options quote it
    process = cli.start("demo", "--once", "--events", str(EVENTS), "--log", cli.url)
    out, err = (text.decode() for text in process.communicate(timeout=left()))
    assert process.returncode == 0, out + err
    assert err == ""
    assert "starting Spark" in out.splitlines()[0]
    assert "5,000 rows = " in out
    assert out.count("✓") == 5
    assert "✗" not in out
    assert "most viewed" in out
    assert "Every page view is accounted for." in out

    late = cli.records("pageviews.late")
    assert late and f"{len(late):,} in the recount, 0 missing, 0 extra" in out
    (view,) = cli.lines("views", "list")
    assert (view["name"], view["law"]["rows"], view["law"]["late"]) == (
        *("hits_per_minute", EVENTS, len(late)),
    )

    # It can also fail: it finds one wrong count in the view.
    folder = Path(cli.url.removeprefix("file:"))
    db = apsw.Connection(str(folder / "views" / "pageviews.db"))
    db.execute("UPDATE _headrace_panes_hits_per_minute SET hits = hits + 1 WHERE rowid = 7")
    db.close()
    with open_views(cli.url) as views:
        findings = check(folder, load_app(f"{pipeline_file()}:app"), views, EVENTS)
    (wrong,) = [finding for finding in findings if not finding.holds]
    assert wrong.law == "page views counted in their minute"
    assert "1 differ from the recount; first " in wrong.remark


@pytest.mark.slow
def test_the_demo_of_fraud_finds_all_that_its_rules_mean(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    words = ("demo", "fraud", "--once", "--events", "3000", "--json", "--log", cli.url)
    process = cli.start(*words)
    out, err = (text.decode() for text in process.communicate(timeout=left()))
    assert (process.returncode, err) == (0, ""), out + err
    report = json.loads(out)
    assert report["holds"]
    assert [rule["recall"] for rule in report["rules"]] == [1.0, 1.0, 1.0]
    assert all(rule["meant"] for rule in report["rules"])
    passed = report["let_through"]
    assert passed["caught"] > 0
    money = [passed[kind]["money"] for kind in ("alerted", "hourly", "all")]
    assert money == sorted(money)
    assert set(report["latency"]) == {"p50", "p95", "p99"}
    alerts = cli.records("fraud.alerts")
    assert len({alert.value["alert"] for alert in alerts}) == len(alerts)


@pytest.mark.slow
def test_the_demo_of_a_catalog_has_stores_that_follow_and_recover(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    process = cli.start("demo", "catalog", "--once", "--events", "3000", "--json", "--log", cli.url)
    out, err = (text.decode() for text in process.communicate(timeout=left()))
    assert (process.returncode, err) == (0, ""), out + err
    report = json.loads(out)
    assert report["holds"]
    rows = {found["law"]: found["counted"] for found in report["findings"]}
    assert {rows[f"products in {store}"] for store in ("search", "cache", "delta")} == {3_000}
    assert rows["orders in delta"] >= 1_500
    assert report["outage"]["missed"] >= 2_000
    assert report["accident"]["deleted"] == 1_500
    assert cli.lines("search", "products", "oak chair")
    running = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True)
    assert "stores run" not in running.stdout or cli.url not in running.stdout


def test_the_demo_of_a_bank_finds_that_every_balance_follows_from_its_events(
    tmp_path: Path,
) -> None:
    cli = Cli(tmp_path)
    words = ("demo", "bank", "--once", "--events", "60", "--log", cli.url)
    said = cli.run(*words).stdout
    assert "refused: the balance is 10000" in said
    assert "5.00 come back: the account is not open" in said
    assert said.count("✓") == 5 and "✗" not in said
    report = cli.json(*words)  # again, on the same log
    assert report["holds"] and report["commands"] == 87
    assert report["refused"] >= 2


def test_a_store_that_differs_from_the_database_is_found(tmp_path: Path) -> None:
    path, cache = tmp_path / "shop.db", JsonFile(str(tmp_path / "cache"))
    shop = Shop(path, 10)
    shop.open()
    names, rows = shop.query("SELECT sku, name, description, price, stock FROM products")
    columns = pa.schema(
        [(name, pa.string()) for name in names[:3]]
        + [("price", pa.float64()), ("stock", pa.int64())]
    )
    view = StoredView("catalog", "products", columns, ("sku",), tmp_path)
    found = [dict(zip(names, row, strict=True)) for row in rows]
    for wrong in ([], [{**found[3], "price": 1.0}]):
        with cache.beside(view) as built:
            built.fill(
                [changes_of(view, [*found[:3], *(wrong or found[3:4]), *found[4:]], at=1)],
                position_at(1),
            )
        cache.switch(view)
        finding = as_in_the_database(view, cache, shop)
        assert finding.holds == (not wrong)
    assert "1 missing, 1 extra" in finding.remark


@pytest.mark.slow
def test_on_a_terminal_the_demo_is_drawn_until_ctrl_c_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    cli = Cli(tmp_path)
    process, terminal = _on_a_terminal(cli, "demo", "--log", cli.url)
    seen = b""
    while b"all pages" not in seen:
        seen += os.read(terminal, 1 << 16)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # which is how a closed terminal appears
        while more := os.read(terminal, 1 << 16):
            seen += more
    os.close(terminal)
    assert process.wait(left()) == 0
    drawn = seen.decode()
    for part in ("starting Spark", "watermark", "too late", "broken", "most viewed"):
        assert part in drawn
    assert "Every page view is accounted for." in drawn
    running = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True)
    assert cli.url not in running.stdout


def _on_a_terminal(cli: Cli, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    """A command with a terminal of the usual size, and the other end of that terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    process = started(
        subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=cli.environment,
            process_group=0,
        )
    )
    os.close(theirs)
    return process, ours


def test_ctrl_c_while_spark_starts_ends_the_demo(tmp_path: Path) -> None:
    process = Cli(tmp_path).start("demo")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (130, "")


def test_a_demo_needs_an_event(tmp_path: Path) -> None:
    assert "'--events'" in Cli(tmp_path).run("demo", "--events", "0", code=2).stderr


def test_the_pipelines_of_the_demo_are_those_to_copy() -> None:
    assert pipeline_file().parts[-2:] == ("pipelines", "pageviews.py")
    assert pipeline_file("fraud.py").exists()
    assert pipeline_file("catalog.py").exists()
