"""Only features that use a server's client need its package."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT = """
import sys

extras = (
    "confluent_kafka", "cryptography", "deltalake", "fastavro", "opensearchpy", "orjson",
    "psycopg2", "redis",
)

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in extras:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run(*lines: str) -> str:
    """The output of a program without the packages of extras."""
    program = _WITHOUT + "\n".join(lines)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pipelines_run_without_kafkas_client() -> None:
    modules = ("headrace", "headrace.application.run", "headrace.testing", "headrace.cli.running")
    assert run(*(f"import {name}" for name in modules), "print('there')") == "there\n"


def test_a_log_on_kafka_says_what_to_install() -> None:
    output = run(
        "import headrace as hr",
        "try:",
        "    hr.open_log('kafka://127.0.0.1:1')",
        "except hr.errors.MissingExtra as error:",
        "    print(error)",
    )
    assert "pip install 'headrace[kafka]'" in output


@pytest.mark.parametrize(
    ("store", "extra"),
    [
        ("hr.Redis('redis://h')", "redis"),
        ("hr.Delta('lake')", "delta"),
        ("hr.Postgres('postgresql://h/d')", "postgres"),
        ("hr.OpenSearch('http://h')", "opensearch"),
    ],
)
def test_a_store_says_what_to_install(store: str, extra: str) -> None:
    output = run(
        "import headrace as hr",
        "try:",
        f"    {store}",
        "except hr.errors.MissingExtra as error:",
        "    print(error)",
    )
    assert f"pip install 'headrace[{extra}]'" in output


def test_a_key_store_says_what_to_install() -> None:
    output = run(
        "import headrace.eventsourcing as es",
        "try:",
        "    es.KeyStore('keys.db')",
        "except Exception as error:",
        "    print(type(error).__name__, error)",
    )
    assert "MissingExtra" in output and "pip install 'headrace[privacy]'" in output
