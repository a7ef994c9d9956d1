"""Only features that use a server's client need its package."""

from __future__ import annotations

import subprocess
import sys

_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("confluent_kafka", "fastavro", "orjson"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run(*lines: str) -> str:
    """The output of a program without Kafka's client installed."""
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
