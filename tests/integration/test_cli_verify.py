"""`headrace verify`: a table of hops, the rows that differ, and the exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.integration.test_cli_running import Cli, ended
from tests.shop import SCHEMA, TOPIC, Shop, opened_shop
from tests.waiting import wait_until

MODULE = f"""
import headrace as hr

app = hr.App("shop")
products = app.captured("{TOPIC}", schema="{SCHEMA}", key="id")
app.view("products", products)
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("verify")
    with opened_shop(folder) as made:
        (folder / "shop.py").write_text(MODULE)
        yield made


@pytest.fixture
def cli(shop: Shop) -> Iterator[Cli]:
    yield Cli(shop.folder)
    shop.damage_view("UPDATE {table} SET name = 'chair 9' WHERE id = 9")


def test_a_view_that_is_as_it_should_be_exits_with_0(cli: Cli) -> None:
    done = cli.run("verify", f"{cli.folder}/shop.py:app")
    header, line = done.stdout.splitlines()[1:]
    assert header.split()[:3] == ["from", "to", "rows"]
    assert line.split("  ")[0] == f"topic {TOPIC}"
    assert done.stderr == "Every row is as it should be\n"


def test_a_row_that_differs_is_shown_with_its_commit_and_exits_with_1(cli: Cli, shop: Shop) -> None:
    shop.damage_view("UPDATE {table} SET name = 'chair 99' WHERE id = 9")
    done = cli.run("verify", f"{cli.folder}/shop.py:app", "products", code=1)
    assert "1 difference; --repair mends them" in done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("different"))
    assert [part.strip() for part in line.split("  ") if part.strip()][:4] == [
        "different", "9", "name chair 9", "name chair 99",
    ]  # fmt: skip


def test_json_has_each_hop_and_each_row(cli: Cli, shop: Shop) -> None:
    shop.damage_view("UPDATE {table} SET name = 'chair 99' WHERE id = 9")
    done = cli.invoke("verify", f"{cli.folder}/shop.py:app", "--json")
    assert done.exit_code == 1
    (found,) = [line for line in done.stdout.splitlines() if line]
    assert '"expected": {"name": "chair 9"}, "found": {"name": "chair 99"}' in found
    assert '"transaction": "tx10"' in found


def test_a_view_that_was_verified_before_needs_no_application(cli: Cli) -> None:
    cli.run("verify", f"{cli.folder}/shop.py:app")
    assert cli.json("verify", "products", "--changed")["hops"][0]["rows"] == 0
    done = cli.run("verify", "orders", code=2)
    assert done.stderr == (
        "error: View 'orders' was never verified, so its application has to be named\n"
        "  → headrace verify MODULE:APP orders\n"
    )


def test_it_goes_on_until_it_is_stopped(cli: Cli, shop: Shop) -> None:
    note = shop.folder / "log" / "apps" / "shop" / "verified" / "products.json"
    note.unlink(missing_ok=True)
    process = cli.start("verify", f"{cli.folder}/shop.py:app", "--every", "1h", "--json")
    wait_until(note.exists)
    process.send_signal(signal.SIGINT)
    code, out, _ = ended(process)
    assert code == 0
    assert '"proven": true' in out


def test_every_and_changed_exclude_each_other(cli: Cli) -> None:
    done = cli.run("verify", "products", "--every", "1h", "--changed", code=2)
    assert "Leave out --changed" in done.stderr
