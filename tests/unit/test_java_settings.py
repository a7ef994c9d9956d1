"""The settings of a Kafka log's address that Spark gets, and those that it cannot get."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headrace.errors import InvalidSetting, Unsupported
from headrace.plan.kafka.connection import java_settings

CANARY = "c4n4ry7f3ac4n4ry"
CHAIN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"
LOCKED = KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_what_is_no_matter_of_security_is_each_clients_own() -> None:
    given = {"client.rack": "r1", "socket.timeout.ms": "1000", "client.id": "me"}
    assert java_settings(given) == {"client.rack": "r1"}


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_login_is_quoted(name: str) -> None:
    given = {name: "PLAIN", "sasl.username": "bob", "sasl.password": 'a"b\\c'}
    assert java_settings({"security.protocol": "sasl_ssl", **given}) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="bob" password="a\\"b\\\\c";',
    }


def test_authorities_are_a_file_or_a_text(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(CHAIN)
    assert java_settings({"ssl.ca.location": str(file)}) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(file),
    }
    assert java_settings({"ssl.ca.pem": CHAIN}) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CHAIN,
    }


@pytest.mark.parametrize("key", [KEY, LOCKED], ids=["open", "locked"])
@pytest.mark.parametrize("files", [False, True])
def test_a_certificate_with_its_key_is_given_as_text(tmp_path: Path, files: bool, key: str) -> None:
    given = {"ssl.certificate.pem": CHAIN, "ssl.key.pem": key}
    if files:
        for name, text in (("certificate", CHAIN), ("key", key)):
            (tmp_path / name).write_text(text)
        given = {f"ssl.{name}.location": str(tmp_path / name) for name in ("certificate", "key")}
    assert java_settings({**given, "ssl.key.password": "secret"}) == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CHAIN,
        "ssl.keystore.key": key,
        **({"ssl.key.password": "secret"} if key == LOCKED else {}),
    }


def test_a_keystore_is_one_of_pkcs12() -> None:
    given = {"ssl.keystore.location": "/a.p12", "ssl.keystore.password": "secret"}
    assert java_settings(given) == {**given, "ssl.keystore.type": "PKCS12"}


def test_a_name_that_is_not_looked_at_is_an_empty_word_to_java() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert java_settings({name: "none"}) == {name: ""}
    assert java_settings({name: "https"}) == {name: "https"}
    assert java_settings({"enable.ssl.certificate.verification": "true"}) == {}


@pytest.mark.parametrize(
    "given",
    [
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.mechanisms": "OAUTHBEARER"},
        {"sasl.kerberos.keytab": "/a.keytab"},
        {"sasl.oauthbearer.token.endpoint.url": CANARY},
        {"enable.sasl.oauthbearer.unsecure.jwt": "true"},
        {"enable.ssl.certificate.verification": "false"},
        {"https.ca.pem": CANARY},
        {"ssl.ca.location": "probe"},
        {"ssl.ca.location": "/etc"},
        {"ssl.ca.location": "/ca.pem", "ssl.ca.pem": CANARY},
        {"ssl.certificate.pem": CANARY},
        {"ssl.cipher.suites": "AES128-SHA"},
        {"ssl.crl.location": "/crl.pem"},
        {"ssl.keystore.location": "/a.p12", "ssl.key.pem": KEY, "ssl.certificate.pem": CHAIN},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_java_cannot_be_told_is_refused_by_its_name(given: dict[str, str]) -> None:
    with pytest.raises(Unsupported, match=next(iter(given))) as caught:
        java_settings(given)
    assert CANARY not in str(caught.value)


def test_a_login_without_a_mechanism_is_one_of_kerberos() -> None:
    with pytest.raises(Unsupported, match=r"sasl\.mechanism=GSSAPI"):
        java_settings({"security.protocol": "SASL_SSL", "sasl.username": "bob"})


def written(form: serialization.PrivateFormat, password: str = "") -> str:
    """A key as text."""
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        lock = serialization.BestAvailableEncryption(password.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(serialization.Encoding.PEM, form, lock).decode()


@pytest.mark.parametrize(
    "key",
    [
        written(serialization.PrivateFormat.TraditionalOpenSSL),
        written(serialization.PrivateFormat.PKCS8, "secret"),
        CHAIN,
        KEY + KEY,
    ],
    ids=["another form", "encrypted by PBES2", "no key", "two keys"],
)
def test_a_key_that_java_cannot_read_is_refused_with_what_to_do(key: str) -> None:
    with pytest.raises(InvalidSetting, match=r"cannot read the key in ssl\.key\.pem") as caught:
        java_settings({"ssl.key.pem": key, "ssl.certificate.pem": CHAIN})
    assert "openssl pkcs12" in caught.value.hint
    assert key.splitlines()[1] not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"ssl\.key\.location .*nothing\.pem"):
        java_settings({"ssl.key.location": f"{tmp_path}/nothing.pem"})
    with pytest.raises(InvalidSetting, match=r"neither ssl\.certificate\.pem nor"):
        java_settings({"ssl.key.pem": KEY})
