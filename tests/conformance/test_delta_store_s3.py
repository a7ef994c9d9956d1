"""The laws of a store hold for Delta tables on an S3-compatible server, over real HTTP."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import polars
import pyarrow as pa
import pytest

from headrace.errors import StoreUnavailable
from headrace.servers.java import ports
from headrace.store.contract import Store, StoredView, StorePosition
from headrace.store.delta import Delta
from headrace.store.delta.table import DeltaVersion
from headrace.store.suite import StoreSuite, changes_of, rows_of
from tests.waiting import wait_until

pytestmark = pytest.mark.service

SECRET = "hunter2-is-the-secret"
_numbers = itertools.count()


class S3:
    """A server in a process of its own: deltalake holds Python's lock while it removes files."""

    def __init__(self) -> None:
        (self.port,) = ports.free(1)
        command = [sys.executable, "-m", "moto.server", "-H", ports.HOST, "-p", str(self.port)]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        wait_until(lambda: ports.answers(self.port))

    @property
    def options(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIA",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def bucket(self) -> str:
        """A new bucket, at its address."""
        name = f"lake-{next(_numbers)}"
        boto3.client(
            "s3",
            endpoint_url=self.options["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            aws_access_key_id="AKIA",
            aws_secret_access_key=SECRET,
        ).create_bucket(Bucket=name)
        return f"s3://{name}/warehouse"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    server = S3()
    yield server
    server.process.kill()
    server.process.wait()


def made(s3: S3) -> Delta:
    return Delta(s3.bucket(), options=s3.options)


@pytest.mark.slow
class TestDeltaOnS3(StoreSuite):
    @pytest.fixture
    def store(self, s3: S3) -> Store:
        return made(s3)

    def test_names_may_be_keywords_and_have_any_characters(
        self, store: Store, tmp_path: Path
    ) -> None:
        pytest.skip("names are those of a table in a folder")

    def test_a_process_killed_at_any_moment_leaves_rows_and_position_that_agree(
        self, store: Store, tmp_path: Path
    ) -> None:
        pytest.skip("commits are those of a table in a folder")


def view(folder: Path) -> StoredView:
    columns = pa.schema([("id", pa.int64()), ("revision", pa.int64())])
    return StoredView("shop", "orders", columns, ("id",), folder)


def test_polars_reads_the_table_at_its_address(s3: S3, tmp_path: Path) -> None:
    store, kind = made(s3), view(tmp_path)
    with store.beside(kind) as built:
        built.fill([changes_of(kind, [{"id": 1, "revision": 1}])], StorePosition("one", 1))
    store.switch(kind)
    address = f"{store.folder}/shop/orders"
    found = polars.read_delta(address, storage_options=s3.options)
    assert found.to_dicts() == [{"id": 1, "revision": 1}]


def test_the_later_of_two_writers_at_once_is_refused_by_the_storage(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, kind = made(s3), view(tmp_path)
    with store.beside(kind) as built:
        built.fill([changes_of(kind, [{"id": 1, "revision": 1}])], StorePosition("one", 1))
    store.switch(kind)
    with store.live(kind) as slow, store.live(kind) as quick:
        merge = DeltaVersion._merge

        def overtaken(self: DeltaVersion, *arguments: Any) -> None:
            if self is slow:
                quick.apply(changes_of(kind, [{"id": 1, "revision": 3}]))
            merge(self, *arguments)

        monkeypatch.setattr(DeltaVersion, "_merge", overtaken)
        with pytest.raises(StoreUnavailable):
            slow.apply(changes_of(kind, [{"id": 1, "revision": 2}]))
        assert rows_of(quick) == [{"id": 1, "revision": 3}]


def test_a_server_that_is_down_is_unavailable_and_its_secret_is_never_shown(
    s3: S3, tmp_path: Path
) -> None:
    (nobody,) = ports.free(1)
    options = {**s3.options, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{nobody}", "max_retries": "0"}
    store = Delta("s3://lake/warehouse", options=options)
    with pytest.raises(StoreUnavailable) as caught, store.live(view(tmp_path)) as live:
        live.position()
    with pytest.raises(StoreUnavailable):
        store.beside(view(tmp_path))
    assert SECRET not in f"{caught.value} {caught.value!r} {caught.value.__context__!r} {store!r}"
