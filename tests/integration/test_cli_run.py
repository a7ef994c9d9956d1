"""`headrace run`: a pipeline as a process, from the first row to Ctrl-C, and its refusals."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.store import open_views
from tests.integration.test_cli_running import Cli, ended
from tests.waiting import left, wait_until

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

SHOP = """\
from datetime import timedelta as td
import headrace as hr

app = hr.App("shop", log="file:./elsewhere")
orders = app.topic("orders", schema="item string, paid int, at timestamp", event_time="at")
sold = hr.aggregate(
    hr.filter(orders, "item != 'nothing'"),
    by="item",
    window=hr.tumbling(td(minutes=1)),
    lateness=hr.Lateness(delay=td(seconds=10), grace=td(minutes=5)),
    paid=hr.sum("paid"),
)
app.view("sold", sold)
app.publish("orders.late", sold.late)
"""


class Shop(Cli):
    """The command line in a folder with a pipeline, `shop:app`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = SHOP) -> None:
        super().__init__(folder)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "modules", dict(sys.modules))
        (folder / "shop.py").write_text(text)

    def order(self, *orders: tuple[str, int | None]) -> None:
        """Commit orders, each an item and its event time in seconds after noon."""
        with self.open() as log, log.producer() as producer:
            if "orders" not in {topic.name for topic in log.topics()}:
                schema = "item string, paid int, at timestamp"
                log.create_topic("orders", schema=schema, event_time="at")
            for item, second in orders:
                at = None if second is None else NOON + timedelta(seconds=second)
                producer.send("orders", {"item": item, "paid": 2, "at": at})

    def law(self) -> dict[str, Any]:
        with open_views(self.url) as views:
            return vars(views.list()[0].law) if views.list() else {}


def java_of(pid: int) -> int:
    """The Java process that a Python process has started."""
    (found,) = (
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.read_text().rpartition(")")[2].split()[1] == str(pid)
        and "(java)" in path.read_text()
    )
    return found


@pytest.mark.slow
def test_a_killed_driver_is_told_of_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch)
    shop.order(("pen", 5))
    process = shop.start("run", "shop:app")
    wait_until(lambda: shop.law().get("rows") == 1)
    shop.order(("pen", 6))
    os.kill(java_of(process.pid), signal.SIGKILL)
    code, _, err = ended(process)
    assert code == 1
    assert "the Java process that Spark runs in is gone" in err

    again = shop.start("run", "shop:app")
    wait_until(lambda: shop.law().get("rows") == 2)
    again.send_signal(signal.SIGINT)
    code, out, err = ended(again)
    assert code == 130, err
    assert "2 rows = 2 counted" in out


def test_a_pipeline_runs_until_ctrl_c_and_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch)
    shop.order(("pen", 5), ("nothing", 6), ("cup", None))
    process = shop.start("run", "shop:app")
    wait_until(lambda: shop.law().get("rows") == 3)

    refused = shop.run("run", "shop:app", code=2)
    assert f"running already, as process {process.pid}" in refused.stderr
    assert refused.stdout == ""

    shop.order(("pen", 400), ("pen", 7))
    shop.order(("pen", 8))
    wait_until(lambda: shop.law()["rows"] == 6)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert code == 130, err
    assert "Starting Spark" in err
    assert "Traceback" not in err
    assert [line.split("  ") for line in out.splitlines()][1][:2] == [
        *("sold", "6 rows = 3 counted + 1 late + 1 filtered + 1 dead"),
    ]
    assert "2026-01-31 12:06:30Z" in out
    assert not (tmp_path / "elsewhere").exists(), "HEADRACE_LOG is stronger than the application"

    shop.order(("pen", 410))
    process = shop.start("run", "shop.py:app", "--until-caught-up", "--json", "--max-commits", "1")
    out, err = (text.decode() for text in process.communicate(timeout=left()))
    assert process.returncode == 0, err
    (line,) = out.splitlines()
    report = json.loads(line)
    assert report == {
        **{"app": "shop", "step": "sold", "rows": 7, "counted": 4, "late": 1, "filtered": 1},
        **{"dead": 1, "tombstones": 0, "exploded": 0, "pairs": 5, "holds": True, "lag": 0},
        "lags": {"orders": [0]},
        **{"waiting": 0, "compacted": 0, "duplicates": 0},
        **{"frontier": "2026-01-31T12:06:50Z", "watermark": "2026-01-31T12:06:40Z"},
    }


CHAIN = (
    SHOP.partition("app.view(")[0]
    + """\
app.view("per_hour", hr.aggregate(
    sold, by="item", window=hr.tumbling(td(hours=1)),
    lateness=hr.Lateness(delay=td(0), grace=td(0)), most=hr.max("paid"),
))
"""
)


@pytest.mark.slow
def test_a_chain_is_run_and_drained_and_each_of_its_steps_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch, CHAIN)
    shop.order(("pen", 5), ("pen", 6))
    shop.order(("pen", 4000))
    code, out, err = ended(shop.start("run", "shop:app", "--until-caught-up"))
    assert (code, "Traceback" in err) == (0, False), err
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [
        *(["per_hour.part", "3"], ["per_hour", "1"]),
    ]
    code, out, err = ended(shop.start("drain", "shop:app", "--yes", "--json"))
    assert (code, "Traceback" in err) == (0, False), err
    inner, outer = map(json.loads, out.splitlines())
    assert (inner["step"], inner["rows"], outer["step"], outer["rows"]) == (
        *("per_hour.part", 3, "per_hour", 2),
    )
    with open_views(shop.url) as views:
        assert [row["most"] for row in views.rows("per_hour")] == [4, 2]


@pytest.mark.slow
def test_a_pipeline_that_fails_says_why_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SHOP.replace("item != 'nothing'", "cast(item as int) > 0")
    shop = Shop(tmp_path, monkeypatch, text)
    shop.order(("pen", 5))
    process = shop.start("run", "shop:app", "--until-caught-up", "--json")
    out, err = (text.decode() for text in process.communicate(timeout=left()))
    assert (process.returncode, out) == (1, ""), err
    assert "error: Step 'sold' failed: " in err
    assert "CAST_INVALID_INPUT" in err
    assert "Traceback" not in err


def test_a_column_that_is_not_there_is_told_with_its_line_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch, SHOP.replace("item != 'nothing'", "itm != 'nothing'"))
    done = shop.run("run", "shop:app", code=2)
    assert done.stderr.startswith("error: There is no column 'itm' in ")
    assert "→ Did you mean 'item'? See " in done.stderr
    assert "shop.py:7: hr.filter(orders, \"itm != 'nothing'\")," in done.stderr
    assert "Spark" not in done.stderr.removeprefix("error: ")
    assert not (tmp_path / "log").exists()


def test_an_application_without_results_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch, "import headrace as hr\napp = hr.App('shop')\n")
    done = shop.run("run", "shop:app", code=2)
    assert done.stderr.startswith("error: Application 'shop' does nothing\n")


@pytest.mark.parametrize(
    "reference, said",
    [
        ("shop", "'shop' does not name an application"),
        ("shopp:app", "There is no module 'shopp'"),
        ("shopp.py:app", "There is no file shopp.py"),
        ("shop:apps", "'shop' has no 'apps'"),
        ("shop:orders", "'shop:orders' is of type Source, not an application"),
    ],
)
def test_what_is_not_an_application_is_the_users_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, said: str
) -> None:
    done = Shop(tmp_path, monkeypatch).run("run", reference, code=2)
    assert done.stderr.startswith(f"error: {said}\n  → ")


def test_a_size_of_memory_has_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Shop(tmp_path, monkeypatch).run("run", "shop:app", "--memory", "lots", code=2)
    assert done.stderr == "error: 'lots' is not a memory size\n  → Write 512m or 2g\n"
