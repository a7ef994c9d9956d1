"""`headrace kafka`: a local cluster, and its failures."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from headrace.servers.java.ports import answers
from headrace.servers.kafka import Cluster, ClusterState
from tests.integration.processes import mounted, python
from tests.integration.test_cli_running import Cli
from tests.waiting import left

pytestmark = pytest.mark.service


class Kafka(Cli):
    """The command line with a cluster in a test's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.data = ["--data", str(folder / "kafka")]

    def answer(self, *words: str) -> Any:
        return self.json("kafka", *words, *self.data)

    def refused(self, *words: str, code: int) -> str:
        done = self.run("kafka", *words, *self.data, code=code)
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Kafka]:
    cli = Kafka(tmp_path)
    yield cli
    Cluster(cli.data[-1]).down(remove=True)


def test_a_broker_is_started_once_and_has_its_data_again_after_a_stop(cli: Kafka) -> None:
    first = cli.answer("up", "--port", "0")
    (broker,) = first["brokers"]
    assert first["up"] and broker["alive"] and broker["joined"]
    assert first["url"] == f"kafka://127.0.0.1:{broker['port']}"

    again = cli.run("kafka", "up", *cli.data)
    assert "up already, with 1 broker" in again.stderr
    assert first["url"] in again.stderr
    assert cli.answer("status") == first

    tool = [*cli.data, "topics", "--create", "--topic", "kept", "--partitions", "3"]
    code, out, err = ended_tool(cli, *tool)
    assert (code, out) == (0, "Created topic kept.\n"), err
    producer = Producer({"bootstrap.servers": first["servers"]})
    producer.produce("kept", b"a value", partition=2)
    assert producer.flush(30) == 0
    led = cli.answer("status")
    assert led["brokers"][0]["leads"] == led["brokers"][0]["in_sync"] == 3
    assert {"topic": "kept", "partition": 2, "leader": 1, "replicas": [1], "in_sync": [1]} in led[
        "partitions"
    ]

    assert cli.answer("down") == {"stopped": True, "removed": False}
    assert cli.answer("down") == {"stopped": False, "removed": False}
    stopped = cli.answer("status")
    assert not stopped["up"]
    assert stopped["brokers"][0]["pid"] is None
    assert "down" in cli.run("kafka", "status", *cli.data).stdout

    # A kill also stops it.
    assert cli.answer("up")["url"] == first["url"]
    os.kill(cli.answer("status")["brokers"][0]["pid"], signal.SIGKILL)
    assert cli.answer("up")["url"] == first["url"]
    consumer = Consumer(
        {"bootstrap.servers": first["servers"], "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["kept"])
    assert [message.value() for message in consumer.consume(1, 30)] == [b"a value"]
    consumer.close()

    assert "--yes" in cli.refused("down", "--remove", code=2)
    assert cli.answer("down", "--remove", "--yes") == {"stopped": True, "removed": True}
    assert cli.answer("status")["brokers"] == []


def ended_tool(cli: Kafka, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", "kafka", "tool", *words],
        capture_output=True,
        text=True,
        env=cli.environment,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_folder_may_have_any_letters_in_its_name(
    cli: Kafka, monkeypatch: pytest.MonkeyPatch, locale: str
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    folder = cli.folder / "józef's \\u006b \N{WATER WAVE}"
    cli.data = ["--data", str(folder)]
    servers = cli.answer("up", "--port", "0")["servers"]
    code, _, err = ended_tool(cli, *cli.data, "topics", "--create", "--topic", "kept")
    assert code == 0, err
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("kept", b"a value")
    assert producer.flush(30) == 0
    assert cli.answer("down") == {"stopped": True, "removed": False}
    assert os.listdir(cli.folder) == [folder.name], "it is kept somewhere else"
    assert (folder / "node-1" / "data" / "kept-0").is_dir()

    assert cli.answer("up")["servers"] == servers
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["kept"])
    assert [message.value() for message in consumer.consume(1, 30)] == [b"a value"]
    consumer.close()


def test_a_folder_with_a_comma_is_refused(cli: Kafka) -> None:
    cli.data = ["--data", str(cli.folder / "a,b")]
    said = cli.refused("up", "--port", "0", code=2)
    assert "a,b cannot be a cluster folder" in said
    assert os.listdir(cli.folder) == []


def test_kafkas_own_tools_see_a_group_and_its_lag(cli: Kafka, broker: ClusterState) -> None:
    server = ["--bootstrap-server", broker.servers]
    ended_tool(cli, "topics", *server, "--create", "--topic", "tool.lag")
    producer = Producer({"bootstrap.servers": broker.servers})
    for number in range(5):
        producer.produce("tool.lag", str(number))
    producer.flush(30)
    group = {"group.id": "tool.readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.servers, **group})
    consumer.subscribe(["tool.lag"])
    (*_, last) = consumer.consume(2, 30)
    consumer.commit(message=last, asynchronous=False)
    consumer.close()
    code, out, err = ended_tool(
        cli, "consumer-groups", *server, "--describe", "--group", "tool.readers"
    )
    assert code == 0, err
    heading, line = (line.split() for line in out.splitlines() if line.strip())
    found = dict(zip(heading, line, strict=False))
    assert (found["TOPIC"], found["CURRENT-OFFSET"], found["LAG"]) == ("tool.lag", "2", "3")


def test_a_tool_that_there_is_not_is_told_with_those_that_there_are(cli: Kafka) -> None:
    assert "consumer-groups" in cli.refused("tool", "kafka-nonsense", code=2)


def test_where_there_is_no_cluster_status_says_how_to_get_one(cli: Kafka) -> None:
    assert cli.answer("status") == {
        "up": False,
        "url": None,
        "servers": "",
        "folder": str(cli.folder / "kafka"),
        "brokers": [],
        "partitions": [],
    }
    assert "headrace kafka up" in cli.run("kafka", "status", *cli.data).stderr
    assert not (cli.folder / "kafka").exists()


def test_a_port_in_use_is_refused(cli: Kafka) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = cli.refused("up", "--port", str(port), code=2)
    assert f"Port {port} of 127.0.0.1 cannot be used: Address already in use" in said
    assert cli.answer("status")["brokers"] == []


def test_a_port_past_the_last_one_is_refused(cli: Kafka) -> None:
    said = cli.refused("up", "--brokers", "3", "--port", "65534", code=2)
    assert "Port 65534 cannot be the first of 3: ports range from 1 to 65535" in said
    assert "65533" in said
    assert cli.answer("status")["brokers"] == []


def test_without_a_java_the_refusal_says_how_to_get_one(
    cli: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(cli.folder / "nowhere"))
    said = cli.refused("up", "--port", "0", code=2)
    assert "There is no Java at" in said
    assert "JAVA_HOME" in said


def test_without_jars_and_without_a_network_the_refusal_names_a_jar(
    cli: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cli.folder / "cache"))
    monkeypatch.setenv("HEADRACE_MAVEN", (cli.folder / "repository").as_uri())
    said = cli.refused("up", "--port", "0", code=1)
    assert "could not be downloaded from file://" in said
    assert "HEADRACE_MAVEN" in said


def test_without_the_client_the_refusal_names_the_extra(cli: Kafka) -> None:
    script = (
        "import sys; sys.modules['confluent_kafka'] = None; sys.argv[0] = 'headrace'\n"
        "from headrace.cli.main import main; main()"
    )
    process = python(script, "kafka", "up", *cli.data)
    _, err = process.communicate(timeout=left())
    assert process.returncode == 2
    assert err == "error: Kafka's client is not installed\n  → pip install 'headrace[kafka]'\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--set", "num.io.threads=many"], "Invalid value many for configuration num.io.threads"),
        (["--set", "nonsense"], "'nonsense' is not a setting"),
        (["--memory", "lots"], "'lots' is not a memory size"),
    ],
)
def test_a_setting_that_kafka_refuses_is_told_in_its_words(
    cli: Kafka, words: list[str], reason: str
) -> None:
    done = cli.run("kafka", "up", "--port", "0", *words, *cli.data, code=cli_code(reason))
    assert reason in done.stderr
    assert "Exception" not in done.stderr
    assert not cli.answer("status")["up"]


def cli_code(reason: str) -> int:
    return 1 if reason.startswith("Invalid value") else 2


@pytest.mark.parametrize("size", ["4k", "32k", "60k"])
def test_a_full_disk_is_told_and_nothing_is_left_running(cli: Kafka, size: str) -> None:
    if not mounted(cli.folder / "kafka", size):
        pytest.skip("only root may mount a filesystem")
    try:
        said = cli.refused("up", "--port", "0", code=1)
        assert "No space left on device" in said
        assert not answers(cli.answer("status")["brokers"][0]["port"])
    finally:
        subprocess.run(["umount", "-l", str(cli.folder / "kafka")], check=True)
