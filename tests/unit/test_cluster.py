"""Code sent to the workers of a cluster, and valid cluster addresses."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from headrace.errors import InvalidSetting
from headrace.runtime.cluster import archive_of_modules, check_master, is_ours, on_this_machine
from headrace.runtime.session import SparkSettings, configuration


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:7077", "spark://h:7077", "spark://a.example:7077,b.example:7077"]
)
def test_a_master_is_named_by_spark_host_and_port(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize("master", ["local", "local[2]", "yarn", "spark://h", "h:7077", "spark:"])
def test_what_is_no_cluster_is_refused(master: str) -> None:
    with pytest.raises(InvalidSetting, match="not the address of a Spark cluster"):
        SparkSettings(master=master)


def test_the_driver_listens_to_others_only_if_workers_may_be_elsewhere() -> None:
    assert on_this_machine("spark://127.0.0.1:7077")
    assert on_this_machine("spark://localhost:7077")
    assert not on_this_machine("spark://10.0.0.1:7077")
    assert not on_this_machine("spark://127.example:7077,localhost:7077")
    here = configuration(SparkSettings(master="spark://localhost:7077"))
    there = configuration(SparkSettings(master="spark://h.example:7077"))
    assert here["spark.driver.host"] == here["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in there
    assert configuration(SparkSettings())["spark.driver.host"] == "127.0.0.1"


def test_an_address_of_another_machine_is_not_ours() -> None:
    assert is_ours("127.0.0.1")
    assert is_ours("localhost")
    # An address reserved for documentation, and a name that nobody can register.
    assert not is_ours("198.51.100.7")
    assert not is_ours("no-such-host.invalid")


def test_workers_get_headrace_and_the_users_own_modules_and_nothing_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shops_alone.py").write_text("rate = 2")
    (tmp_path / "shops").mkdir()
    (tmp_path / "shops" / "__init__.py").write_text("")
    (tmp_path / "shops" / "never_loaded.py").write_text("")
    (tmp_path / "shops" / ".env").write_text("PASSWORD=hunter2")
    (tmp_path / "shops_apart").mkdir()
    (tmp_path / "shops_apart" / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("shops_alone", "shops", "shops_apart.part"):
        importlib.import_module(name)
    first = archive_of_modules(tmp_path / "first")
    with zipfile.ZipFile(first) as archive:
        names = set(archive.namelist())
    assert {"shops_alone.py", "shops/__init__.py", "shops/never_loaded.py"} <= names
    assert "shops_apart/part.py" in names
    assert {"headrace/__init__.py", "headrace/runtime/data_source.py"} <= names
    assert all(name.endswith(".py") for name in names), "something else than code was sent"
    tops = {name.partition("/")[0] for name in names}
    assert not tops & {"pyspark", "pyarrow", "pytest", "json", "typing.py", "__main__.py"}

    assert archive_of_modules(tmp_path / "second").name == first.name
    (tmp_path / "shops_alone.py").write_text("rate = 3")
    assert archive_of_modules(tmp_path / "third").name != first.name
    for name in ("shops_alone", "shops", "shops_apart.part", "shops_apart"):
        del sys.modules[name]
