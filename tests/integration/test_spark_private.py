"""Spark on a shared machine: other users cannot reach it. And what Python remembers of it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from headrace.runtime.session import SparkSettings, configuration
from tests.spark import shared

_LISTEN = "0A"


def listening(pid: int) -> set[str]:
    """The addresses that a process listens on."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(file).removeprefix("socket:[").rstrip("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTEN and inode in inodes:
                words = bytes.fromhex(local.partition(":")[0])
                packed = b"".join(
                    struct.pack(">I", word) for (word,) in struct.iter_unpack("=I", words)
                )
                family = socket.AF_INET if table == "tcp" else socket.AF_INET6
                found.add(socket.inet_ntop(family, packed))
    return found


def loopback(address: str) -> bool:
    found = ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def test_spark_listens_on_loopback_alone_and_asks_for_a_secret() -> None:
    spark = shared()
    assert spark.conf.get("spark.authenticate") == "true"
    assert spark.conf.get("spark.ui.enabled") == "false"
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    addresses = listening(java)
    assert addresses
    assert all(map(loopback, addresses)), addresses


def test_the_secret_of_spark_is_on_no_command_line() -> None:
    spark = shared()
    assert not [name for name, _ in spark.sparkContext.getConf().getAll() if "secret" in name]
    assert not [name for name in configuration(SparkSettings()) if "secret" in name]


def test_a_cluster_keeps_the_secret_that_it_has() -> None:
    assert "spark.authenticate" not in configuration(SparkSettings(master="spark://127.0.0.1:7077"))


def test_java_is_asked_once_for_a_class_and_again_for_what_may_become_one() -> None:
    java = shared().sparkContext._jvm
    assert java is not None
    assert java.org.apache.spark.sql.functions is java.org.apache.spark.sql.functions
    assert java.org.apache.spark.Unknown is not java.org.apache.spark.Unknown
