"""A process is identified by more than its number."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.clock import SECOND, SystemClock
from headrace.errors import InvalidSetting, PortTaken, ServerError
from headrace.servers.java.ports import HOST, answers, free, require
from headrace.servers.java.process import Process, start, started_at
from headrace.servers.kafka import Cluster
from headrace.servers.kafka.layout import Folder, Layout, Node
from headrace.servers.kafka.starting import properties, reason
from tests.waiting import wait_until

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready', flush=True); signal.pause()"
)


def test_a_process_is_alive_until_it_ends(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", "import signal; signal.pause()"], tmp_path / "said")
    assert process.alive()
    assert os.getsid(process.pid) == process.pid, "it is in the session of whoever started it"
    process.end(SystemClock(), 10 * SECOND)
    assert not process.alive()


def test_a_process_that_does_not_want_to_end_is_killed(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", STUBBORN], tmp_path / "said")
    wait_until(lambda: (tmp_path / "said").read_text() == "ready\n")
    process.end(SystemClock(), SECOND // 10)
    assert not process.alive()


def test_a_process_that_had_ended_when_it_was_looked_up_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert not Process(child.pid, started_at(child.pid)).alive()


def test_a_process_that_nobody_waited_for_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = Process(child.pid, started_at(child.pid))
    assert known.alive()
    child.communicate(b"\n")
    assert not known.alive()


def test_another_process_of_the_same_number_is_left_alone(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder = Folder(tmp_path)
    node = Node(1, *free(2))
    folder.write_layout(Layout("cluster", [node]))
    folder.write_process(node, Process(child.pid, "another start"))
    cluster = Cluster(tmp_path)
    assert [(one.alive, one.pid) for one in cluster.state().nodes] == [(False, None)]
    assert not cluster.down()
    cluster.signal(1, signal.SIGKILL)
    assert child.poll() is None
    child.communicate(b"\n")
    assert child.returncode == 0


def test_a_note_of_a_process_that_was_cut_off_is_no_process(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    node = Node(1, *free(2))
    folder.write_layout(Layout("cluster", [node]))
    folder.node(node).mkdir()
    (folder.node(node) / "process.json").write_text('{"pid": 1')
    assert folder.process(node) is None


def test_a_folder_of_something_else_is_not_made_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("the only copy")
    with pytest.raises(InvalidSetting, match="holds something other"):
        Cluster(tmp_path).up()
    assert os.listdir(tmp_path) == ["thesis.txt"]
    assert not Cluster(tmp_path).down(remove=True)
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_a_note_of_the_cluster_that_makes_no_sense_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"nodes": 3}))
    with pytest.raises(ServerError, match=r"cluster\.json cannot be parsed"):
        Cluster(tmp_path).state()


def test_free_ports_are_free_and_apart() -> None:
    found = free(20)
    assert len(set(found)) == 20
    for port in found:
        require(port)
        assert not answers(port)


def test_a_port_that_somebody_listens_on_is_taken() -> None:
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        port: int = server.getsockname()[1]
        assert answers(port)
        with pytest.raises(PortTaken, match=f"Port {port} ") as taken:
            require(port)
        assert taken.value.details == {"port": port}


def test_properties_are_written_as_java_reads_them(tmp_path: Path) -> None:
    node = Node(1, 2, 3)
    given = {"login": 'a="b\\c"; ó', "wave": "\N{WATER WAVE}"}
    lines = properties(node, [node], tmp_path / "józef\\new", given).splitlines()
    assert f"log.dirs={tmp_path}/j\\u00f3zef\\\\new" in lines
    assert 'login=a="b\\\\c"; \\u00f3' in lines
    assert "wave=\\ud83c\\udf0a" in lines


def test_the_reason_is_the_innermost_of_the_last_exception(tmp_path: Path) -> None:
    old, said = tmp_path / "console.log", tmp_path / "broker.log"
    old.write_text("java.lang.OutOfMemoryError: of the last time\n")
    said.write_text(
        "2026-01-01 00:00:00.000 INFO Kafka: starting\n"
        "2026-01-01 00:00:01.000 ERROR Kafka$: Exiting Kafka due to fatal exception\n"
        "java.lang.RuntimeException: Unable to start\n"
        "\tat kafka.Kafka.main(Kafka.scala:1)\n"
        "Caused by: java.io.IOException: No space left on device\n"
        "\tat sun.nio.ch.FileDispatcherImpl.write0(Native Method)\n"
        "2026-01-01 00:00:02.000 INFO Kafka: shut down\n"
    )
    assert reason((old, old.stat().st_size), (said, 0)) == "No space left on device"
    assert reason((tmp_path / "nothing", 0)) == "its log is empty"
