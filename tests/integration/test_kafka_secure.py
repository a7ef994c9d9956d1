"""A broker with authentication over TLS: a whole pipeline, and rejected clients."""

from __future__ import annotations

import contextlib
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
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

import headrace as hr
from headrace.application.run import Run, start
from headrace.clock import SystemClock, to_datetime
from headrace.errors import AccessDenied, LogUnavailable, Unsupported
from headrace.log import open_log
from headrace.servers.java.ports import HOST, free
from headrace.servers.kafka import starting
from headrace.servers.kafka.starting import properties
from headrace.testing import Results
from tests import kafka
from tests.spark import said, shared

pytestmark = pytest.mark.service

PASSWORD = 'pass"word\\canary'
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Secure:
    """A broker with a listener for the user bob, and its certificate.

    Another listener accepts the certificate `client`, and has a certificate for another host.
    """

    port: int
    authority: Path
    mutual_port: int
    elsewhere: Path
    client: tuple[Path, Path]

    def url(self, authority: Path | None = None) -> str:
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "ssl.ca.location": str(authority or self.authority),
            "timeout": "5s",
        }
        words = "&".join(f"{name}={value}" for name, value in settings.items())
        return f"kafka://{HOST}:{self.port}?{words}"

    @property
    def mutual_url(self) -> str:
        unnamed = "ssl.endpoint.identification.algorithm=none"
        return f"kafka://{HOST}:{self.mutual_port}?security.protocol=SSL&{unnamed}&timeout=5s"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    authority, private = certified(folder, "broker")
    elsewhere, private_elsewhere = certified(folder, "elsewhere", "192.0.2.1")
    client = certified(folder, "client")
    port, mutual_port = free(2)
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    extra = {
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(private),
        "listener.name.mutual.ssl.keystore.type": "PEM",
        "listener.name.mutual.ssl.keystore.location": str(private_elsewhere),
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(client[0]),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{login} user_bob="{quoted}";',
    }

    def with_others(*given: Any) -> str:
        """The configuration of a node with two more listeners."""
        configured = {}
        for line in properties(*given).splitlines():
            name, _, value = line.partition("=")
            configured[name] = value
        for name in ("listeners", "advertised.listeners"):
            configured[name] += f",SECURE://{HOST}:{port},MUTUAL://{HOST}:{mutual_port}"
        configured["listener.security.protocol.map"] += ",SECURE:SASL_SSL,MUTUAL:SSL"
        return "".join(f"{name}={value}\n" for name, value in configured.items())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "properties", with_others)
        with kafka.running(folder / "kafka", 1, **extra):
            yield Secure(port, authority, mutual_port, elsewhere, client)


def certified(folder: Path, name: str, address: str = HOST) -> tuple[Path, Path]:
    """A self-signed certificate for a host, and the same with its key."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = to_datetime(SystemClock().now())
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]),
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


def papers(how: str, secure: Secure, folder: Path) -> dict[str, str]:
    """The client's certificate, in one of the forms that settings accept."""
    public, private = secure.client
    if how == "files":
        return {
            "ssl.ca.location": str(secure.elsewhere),
            "ssl.certificate.location": str(public),
            "ssl.key.location": str(private),
            "ssl.key.password": PASSWORD,
        }
    if how == "texts":
        return {
            "ssl.ca.pem": secure.elsewhere.read_text(),
            "ssl.certificate.pem": public.read_text(),
            "ssl.key.pem": private.read_text(),
        }
    key = serialization.load_pem_private_key(private.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    lock = serialization.BestAvailableEncryption(PASSWORD.encode())
    certificate = x509.load_pem_x509_certificate(public.read_bytes())
    store = pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, lock)
    (folder / "client.p12").write_bytes(store)
    return {
        "ssl.ca.location": str(secure.elsewhere),
        "ssl.keystore.location": str(folder / "client.p12"),
        "ssl.keystore.password": PASSWORD,
    }


@pytest.fixture
def bob(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_SASL_USERNAME", "bob")
    monkeypatch.setenv("HEADRACE_KAFKA_SASL_PASSWORD", PASSWORD)


@pytest.mark.slow
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
            assert not processes_with("canary")
            assert "canary" not in repr(results.steps)
        assert [(row["shop"], row["orders"]) for row in results.view("minutes")] == [
            ("a", 2), ("b", 1)
        ]  # fmt: skip
        assert sorted(row["shop"] for row in results.topic("loud")) == ["A", "A", "B"]
    assert not files_with("canary", tmp_path / "state")


def files_with(secret: str, folder: Path) -> list[Path]:
    """The files of a run that contain a secret, Spark's output among them."""
    assert said().stat().st_size > 0
    files = [said(), *(path for path in folder.rglob("*") if path.is_file())]
    return [path for path in files if secret.encode() in path.read_bytes()]


def processes_with(secret: str) -> list[str]:
    """The command lines on this machine that contain a secret, Spark's among them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    assert any("org.apache.spark" in line for line in found)
    return [line for line in found if secret in line]


@pytest.mark.parametrize(
    "how",
    ["files", *(pytest.param(how, marks=pytest.mark.slow) for how in ("texts", "keystore"))],
)
def test_a_pipeline_runs_on_a_broker_that_wants_a_certificate(
    secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for name, value in papers(how, secure, tmp_path).items():
        monkeypatch.setenv(f"HEADRACE_KAFKA_{name.upper().replace('.', '_')}", value)
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    app = hr.App(f"known-{how}")
    words = app.topic(f"words-{how}", schema="word string, at timestamp", event_time="at")
    app.publish(f"loud-{how}", hr.derive(words, word="upper(word)"))
    with open_log(secure.mutual_url) as log:
        log.ensure_topic(words.topic)
        with log.producer() as producer:
            producer.append(words.topic.name, pa.table({"word": ["a", "b"], "at": [NOON] * 2}))
        with Run(app, log, until_caught_up=True, spark=shared()) as run:
            run.wait()
            results = Results(log, app.name, tuple(run.progress()))
        assert sorted(row["word"] for row in results.topic(f"loud-{how}")) == ["A", "B"]
    line_of_key = secure.client[1].read_text().splitlines()[5]
    for secret in ("canary", line_of_key):
        assert not files_with(secret, tmp_path / "state")


def test_who_has_no_certificate_is_not_let_in(secure: Secure) -> None:
    with pytest.raises((AccessDenied, LogUnavailable), match=r"(?i)certificate"):
        open_log(f"{secure.mutual_url}&ssl.ca.location={secure.elsewhere}")


@pytest.mark.usefixtures("bob")
def test_what_spark_cannot_be_told_is_refused_in_real_time_before_it_is_started(
    secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("headrace.application.live.spark_session", None)
    app = hr.App("trusting")
    words = app.topic("trusted", schema="word string, at timestamp", event_time="at")
    app.publish("loud-trusted", hr.derive(words, word="upper(word)"))
    setting = "enable.ssl.certificate.verification"
    with open_log(f"{secure.url()}&{setting}=false") as log:
        with pytest.raises(Unsupported, match=f"{setting}=false"):
            start(app, log, latency="real-time")
        assert "trusted" not in [topic.name for topic in log.topics()]


def test_a_wrong_password_is_told_and_not_shown(
    secure: Secure, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_SASL_USERNAME", "bob")
    monkeypatch.setenv("HEADRACE_KAFKA_SASL_PASSWORD", "wrong canary")
    with pytest.raises((AccessDenied, LogUnavailable), match=r"(?i)authentication") as caught:
        open_log(secure.url())
    out, err = capfd.readouterr()
    texts = [str(caught.value), repr(caught.value), repr(caught.value.details), out, err]
    assert not any("canary" in text for text in texts)


@pytest.mark.usefixtures("bob")
def test_a_broker_that_nobody_vouches_for_is_not_spoken_to(secure: Secure, tmp_path: Path) -> None:
    other, _ = certified(tmp_path, "other")
    with pytest.raises((AccessDenied, LogUnavailable), match=r"(?i)certificate"):
        open_log(secure.url(other))
