"""The settings of Debezium connectors: what is taken, and what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cdc.choice import TableChoice
from headrace.cdc.connector import Connector, load_connector, parse_connector
from headrace.errors import InvalidSetting, Unsupported

ORDERS = {
    "name": "orders-connector",
    "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "postgres-primary",
        "database.port": "5432",
        "database.user": "debezium",
        "database.dbname": "ecommerce",
        "database.server.name": "prod-db",
        "table.include.list": "public.orders,public.products",
        "plugin.name": "pgoutput",
        "slot.name": "debezium_slot",
        "publication.name": "dbz_publication",
        "topic.prefix": "prod-db",
        "snapshot.mode": "initial",
    },
}
TABLES = [("public", "orders"), ("public", "products"), ("public", "users"), ("audit", "orders")]


def connector(**settings: Any) -> Connector:
    config: Any = ORDERS["config"]
    changes = {name.replace("__", "."): value for name, value in settings.items()}
    return parse_connector({**config, **changes}, environment={"SECRET": "swordfish"})


def test_the_connector_of_a_textbook_is_honoured_as_a_whole() -> None:
    assert parse_connector(ORDERS) == Connector(
        kind="postgresql",
        address="postgresql://debezium@postgres-primary:5432/ecommerce",
        prefix="prod-db",
        tables=TableChoice(include=("public.orders", "public.products")),
        snapshot="initial",
        slot="debezium_slot",
        publication="dbz_publication",
    )


def test_the_settings_may_be_bare() -> None:
    assert parse_connector(ORDERS["config"]) == parse_connector(ORDERS)


def test_what_is_not_honoured_is_named_with_the_reason() -> None:
    found = connector(
        plugin__name="wal2json",
        tombstones__on__delete=False,
        transforms__unwrap__type="io.debezium.transforms.ExtractNewRecordState",
        column__exclude__list="public.orders.note",
        slot__nmae="x",
        tasks__max=1,
    )
    reasons = {each.name: each.reason for each in found.unhonoured}
    assert reasons["plugin.name"].startswith("changes are read with pgoutput")
    assert "tombstone" in reasons["tombstones.on.delete"]
    assert "pipeline" in reasons["transforms.unwrap.type"]
    assert reasons["column.exclude.list"] == "all columns of a captured table are captured"
    assert reasons["slot.nmae"] == "there is no such setting. Did you mean slot.name?"
    assert len(reasons) == 5


def test_a_setting_with_the_value_that_headrace_has_is_not_named() -> None:
    found = connector(tombstones__on__delete=True, decimal__handling__mode="precise")
    assert found.unhonoured == ()


@pytest.mark.parametrize(
    ("given", "meant"),
    [("initial", "initial"), ("never", "never"), ("no_data", "never"), ("schema_only", "never"),
     ("when_needed", "when_needed"), ("always", "initial"), ("initial_only", "initial")],
)  # fmt: skip
def test_snapshot_modes(given: str, meant: str) -> None:
    found = connector(snapshot__mode=given)
    assert found.snapshot == meant
    assert bool(found.unhonoured) == (given in ("always", "initial_only"))


def test_a_password_is_never_shown() -> None:
    found = connector(database__password="swordfish")
    assert found.password == "swordfish"
    assert "swordfish" not in f"{found} {found!r} {found.address}"


def test_a_password_can_be_in_a_variable_or_in_a_file(tmp_path: Path) -> None:
    assert connector(database__password="${env:SECRET}").password == "swordfish"
    (tmp_path / "secrets").write_text("user=me\npw = marlin\n")
    assert connector(database__password=f"${{file:{tmp_path}/secrets:pw}}").password == "marlin"
    with pytest.raises(InvalidSetting, match="'OTHER' is not set"):
        connector(database__password="${env:OTHER}")


def test_users_and_databases_are_quoted_in_the_address() -> None:
    found = connector(database__user="a@b", database__dbname="x/y", database__sslmode="require")
    assert found.address == "postgresql://a%40b@postgres-primary:5432/x%2Fy?sslmode=require"


def test_mysql_and_mariadb_are_captured_from_one_database() -> None:
    kind = {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "topic.prefix": "shop"}
    found = parse_connector({**kind, "database.include.list": "shop", "database.user": "me"})
    assert found.address == "mysql://me@localhost:3306/shop"
    with pytest.raises(Unsupported, match="several databases"):
        parse_connector({**kind, "database.include.list": "shop,audit"})


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, "no 'connector.class'"),
        ([], "no 'connector.class'"),
        ({"connector.class": "io.debezium.connector.oracle.OracleConnector"}, "no capture for"),
        ({"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}, "dbname"),
    ],
)
def test_what_is_no_connector_is_refused(found: Any, reason: str) -> None:
    with pytest.raises((InvalidSetting, Unsupported), match=reason):
        parse_connector(found)


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "connector.json"
    with pytest.raises(InvalidSetting, match="cannot be read"):
        load_connector(path)
    path.write_text("slot.name=x")
    with pytest.raises(InvalidSetting, match="is not JSON"):
        load_connector(path)
    path.write_text(json.dumps(ORDERS))
    assert load_connector(path).slot == "debezium_slot"


def test_lists_of_tables_are_regular_expressions_of_whole_names() -> None:
    def chosen(**lists: str) -> list[str]:
        settings = {name.replace("_", "__") + "__list": text for name, text in lists.items()}
        config = {**settings, "table__include__list": lists.get("table_include", "")}
        return [".".join(table) for table in connector(**config).tables.of(TABLES)]

    assert chosen(table_include="public.orders, PUBLIC[.]prod.*") == [
        "public.orders",
        "public.products",
    ]
    assert chosen(table_exclude="public.*") == ["audit.orders"]
    assert chosen(schema_include="audit") == ["audit.orders"]
    assert chosen(schema_exclude="aud.*", table_exclude=".*users") == [
        "public.orders",
        "public.products",
    ]
    assert chosen(table_include=r"public.[a-z]{3\,5}") == ["public.users"]


def test_an_expression_that_matches_nothing_is_refused_with_the_nearest_table() -> None:
    with pytest.raises(InvalidSetting, match=r"Did you mean 'public\.orders'"):
        connector(table__include__list="public.order").tables.of(TABLES)
    with pytest.raises(InvalidSetting, match="not a regular expression"):
        connector(table__include__list="public.(")


def test_tables_can_be_named_with_or_without_their_schema() -> None:
    assert TableChoice(names=("audit.orders", "users")).of(TABLES) == [TABLES[2], TABLES[3]]
    assert TableChoice().of(TABLES) == TABLES
    with pytest.raises(InvalidSetting, match="Did you mean 'products'"):
        TableChoice(names=("product",)).of(TABLES)
    with pytest.raises(InvalidSetting, match="No table is left"):
        TableChoice(exclude=(".*",)).of(TABLES)
