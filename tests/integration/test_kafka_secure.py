"""A broker that asks who one is, over TLS: the whole way of a pipeline, and who is not let in."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from headrace import streams as hr
from headrace.broker import starting
from headrace.broker.properties import properties
from headrace.clock import SystemClock, to_datetime
from headrace.errors import AccessDenied, LogUnavailable
from headrace.java.ports import HOST, free
from headrace.log import open_log
from headrace.runner import Run
from headrace.testing import Results
from tests import kafka
from tests.spark import said, shared

pytestmark = pytest.mark.service

PASSWORD = 'pass"word\\canary'
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Secure:
    """A broker with a listener that lets in bob, and the certificate that it shows."""

    port: int
    authority: Path

    def url(self, authority: Path | None = None) -> str:
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "ssl.ca.location": str(authority or self.authority),
            "timeout": "5s",
        }
        words = "&".join(f"{name}={value}" for name, value in settings.items())
        return f"kafka://{HOST}:{self.port}?{words}"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    authority, private = certified(folder, "broker")
    (port,) = free(1)
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    extra = {
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(private),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{login} user_bob="{quoted}";',
    }

    def with_another(*given: Any) -> str:
        """What a node is told, with one listener more."""
        told = {}
        for line in properties(*given).splitlines():
            name, _, value = line.partition("=")
            told[name] = value
        told["listeners"] += f",SECURE://{HOST}:{port}"
        told["advertised.listeners"] += f",SECURE://{HOST}:{port}"
        told["listener.security.protocol.map"] += ",SECURE:SASL_SSL"
        return "".join(f"{name}={value}\n" for name, value in told.items())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "properties", with_another)
        with kafka.running(folder / "kafka", 1, **extra):
            yield Secure(port, authority)


def certified(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for this machine that vouches for itself, and the same with its key."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = to_datetime(SystemClock().now())
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    paths = folder / f"{name}.pem", folder / f"{name}-key.pem"
    for path, text in zip(paths, (public, private + public), strict=True):
        path.write_bytes(text)
    return paths


@pytest.fixture
def bob(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_SASL_USERNAME", "bob")
    monkeypatch.setenv("HEADRACE_KAFKA_SASL_PASSWORD", PASSWORD)


@pytest.mark.usefixtures("bob")
def test_a_pipeline_runs_on_a_broker_that_asks_who_one_is(
    secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    app = hr.App("safe")
    orders = app.topic("orders", schema="shop string, at timestamp", event_time="at")
    minutes = hr.aggregate(
        orders,
        by="shop",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(timedelta(0), timedelta(0)),
        orders=hr.count(),
    )
    app.view("minutes", minutes)
    app.publish("loud", hr.derive(orders, shop="upper(shop)"))
    with open_log(secure.url()) as log:
        assert PASSWORD not in log.url + repr(log)
        log.ensure_topic(orders.topic)
        with log.producer() as producer:
            producer.append("orders", pa.table({"shop": ["a", "b", "a"], "at": [NOON] * 3}))
        with Run(app, log, until_caught_up=True, spark=shared()) as run:
            run.wait()
            results = Results(log, app.name, tuple(run.progress()))
        assert [(row["shop"], row["orders"]) for row in results.view("minutes")] == [
            ("a", 2), ("b", 1)
        ]  # fmt: skip
        assert sorted(row["shop"] for row in results.topic("loud")) == ["A", "A", "B"]
    written = {path: path.read_bytes() for path in files_of(tmp_path / "state", said())}
    assert written[said()]
    assert not [path for path, text in written.items() if b"canary" in text]


def files_of(*places: Path) -> Iterator[Path]:
    """The files among these places, and in the folders among them."""
    for place in places:
        yield from (path for path in (place, *place.rglob("*")) if path.is_file())


def test_a_wrong_password_is_told_and_not_shown(
    secure: Secure, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_SASL_USERNAME", "bob")
    monkeypatch.setenv("HEADRACE_KAFKA_SASL_PASSWORD", "wrong canary")
    with pytest.raises((AccessDenied, LogUnavailable), match=r"(?i)authentication") as caught:
        open_log(secure.url())
    out, err = capfd.readouterr()
    told = [str(caught.value), repr(caught.value), repr(caught.value.details), out, err]
    assert not any("canary" in text for text in told)


@pytest.mark.usefixtures("bob")
def test_a_broker_that_nobody_vouches_for_is_not_spoken_to(secure: Secure, tmp_path: Path) -> None:
    other, _ = certified(tmp_path, "other")
    with pytest.raises((AccessDenied, LogUnavailable), match=r"(?i)certificate"):
        open_log(secure.url(other))
