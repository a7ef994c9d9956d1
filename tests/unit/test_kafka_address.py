"""The address of a Kafka log: valid forms, and secrets that are never shown."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from headrace.errors import InvalidSetting, MissingExtra
from headrace.log import open_log
from headrace.log.kafka.address import is_secret, parse_address
from headrace.log.kafka.failures import translated

CANARY = "c4n4ry-7f3a"


def test_an_address_is_one_or_more_servers() -> None:
    assert parse_address("kafka://localhost:9092", {}).servers == "localhost:9092"
    assert parse_address("kafka://a.b:1,[::1]:2/", {}).servers == "a.b:1,[::1]:2"


@pytest.mark.parametrize(
    "url", ["kafka://", "kafka://host", "kafka://host:port", "kafka://a:1,b", "kafka://a:1/topic"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="kafka://host:port"):
        parse_address(url, {})


def test_settings_come_from_the_url_then_the_file_then_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\nsasl.mechanism=PLAIN\nsasl.username = bob\n\nsasl.password=a=b\n")
    found = parse_address(
        f"kafka://h:1?config={file}&sasl.username=alice&timeout=5s",
        {
            "HEADRACE_KAFKA_SASL_PASSWORD": "environment",
            "HEADRACE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "HEADRACE_LOG": "kafka://other:1",
        },
    )
    assert found.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "a=b",
    }
    assert found.timeout == timedelta(seconds=5)


def test_a_file_that_cannot_be_read_is_named_and_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"nothing\.properties"):
        parse_address(f"kafka://h:1?config={tmp_path}/nothing.properties", {})
    file = tmp_path / "client.properties"
    file.write_text(f"sasl.password {CANARY}\n")
    with pytest.raises(InvalidSetting, match="Line 1") as caught:
        parse_address(f"kafka://h:1?config={file}", {})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "ssl.certificate.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.jaas.config",
    ],
)
def test_no_secret_is_ever_shown(name: str) -> None:
    assert is_secret(name)
    found = parse_address(f"kafka://h:1?{name}={CANARY}&client.rack=r1", {})
    shown_settings = "&".join(sorted([f"{name}=***", "client.rack=r1"]))
    assert str(found) == f"kafka://h:1?{shown_settings}"
    error = KafkaError(KafkaError._INVALID_ARG, f"no {CANARY} for you")
    raised = translated(error, found, topic="t")
    shown = [str(found), repr(found), found.scrub(f"x{CANARY}y"), str(raised), repr(raised)]
    assert not any(CANARY in text for text in [*shown, repr(raised.details)])
    assert CANARY.encode() not in pickle.dumps(raised)


def test_an_address_with_a_user_in_it_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_address(f"kafka://bob:{CANARY}@h:1", {})
    assert CANARY not in str(caught.value)
    with pytest.raises(InvalidSetting) as caught:
        open_log(f"kafak://bob:{CANARY}@h:1?sasl.password={CANARY}")
    assert CANARY not in str(caught.value)


def test_a_setting_that_the_client_does_not_know_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"sasl\.pasword") as caught:
        open_log(f"kafka://127.0.0.1:1?sasl.pasword=x&sasl.password={CANARY}")
    assert CANARY not in str(caught.value)


def test_without_its_package_a_log_on_kafka_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name="confluent_kafka")

    monkeypatch.setattr("headrace.log.address.importlib.import_module", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'headrace\[kafka\]'"):
        open_log("kafka://localhost:9092")


def test_the_schema_registry_has_settings_of_its_own_and_its_login_is_never_shown(
    tmp_path: Path,
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"schema.registry.basic.auth.user.info=key:{CANARY}\n")
    variables = {"HEADRACE_KAFKA_SCHEMA_REGISTRY_URL": "http://r:8081"}
    found = parse_address(f"kafka://h:1?config={file}", variables)
    assert found.settings == {}
    assert found.registry == {"url": "http://r:8081", "basic.auth.user.info": f"key:{CANARY}"}
    assert CANARY not in f"{found} {found!r} {found.scrub(f'key:{CANARY}')}"
    assert "schema.registry.url=http://r:8081" in str(found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("schema.registry.url=r:8081", "is not the address of a schema registry"),
        ("schema.registry.basic.auth.user.info=a:b", "is not the address of a schema registry"),
        (f"schema.registry.url=http://me:{CANARY}@r", "contains a user"),
        ("schema.registry.url=http://r&schema.registry.ssl.key=x", "no setting"),
    ],
)
def test_settings_that_no_registry_has_are_refused(settings: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message) as caught:
        parse_address(f"kafka://h:1?{settings}", {})
    assert CANARY not in str(caught.value)
