"""MODULE:APP is found, or the error names the user's wrong line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.cli.loading import load_app
from headrace.errors import HeadraceError, InvalidPipeline, UserError

GOOD = "import headrace as hr\nother = 7\napp = hr.App('shop')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose modules are unloaded afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def refused(reference: str, kind: type[HeadraceError] = UserError) -> HeadraceError:
    with pytest.raises(kind) as caught:
        load_app(reference)
    return caught.value


def test_a_module_of_the_current_folder_is_found(folder: Path) -> None:
    (folder / "flows").mkdir()
    (folder / "flows" / "shop.py").write_text(GOOD)
    assert load_app("flows.shop:app").name == "shop"
    assert load_app("flows/shop.py:app").name == "shop"
    assert load_app(f"{folder}/flows/shop.py:app").name == "shop"


def test_the_current_folder_comes_before_installed_packages(folder: Path) -> None:
    (folder / "sqlglot_of_mine.py").write_text(GOOD)
    load_app("sqlglot_of_mine:app")
    assert sys.path[0] == str(folder)


def test_a_file_can_import_its_neighbours(folder: Path) -> None:
    (folder / "flows").mkdir()
    (folder / "flows" / "names_of_shop.py").write_text("NAME = 'corner'\n")
    (folder / "flows" / "shop.py").write_text(
        "import headrace as hr\nfrom names_of_shop import NAME\napp = hr.App(NAME)\n"
    )
    assert load_app("flows/shop.py:app").name == "corner"


@pytest.mark.parametrize("reference", ["shop", "shop:", ":app", ""])
def test_a_reference_has_a_module_and_a_name(folder: Path, reference: str) -> None:
    assert "MODULE:APP" in refused(reference).hint


@pytest.mark.parametrize("module", ["no_such", "no_such.part", "json.no_such", "json.decoder.x"])
def test_a_module_that_is_not_there_is_said_to_be_missing(folder: Path, module: str) -> None:
    error = refused(f"{module}:app")
    assert error.message == f"There is no module {module!r}"
    assert str(folder) in error.hint


def test_a_file_that_is_not_there_is_said_to_be_missing(folder: Path) -> None:
    assert refused("no/such.py:app").message == "There is no file no/such.py"


def test_a_name_that_is_not_there_or_no_application_is_told_with_those_that_are(
    folder: Path,
) -> None:
    (folder / "shop_a.py").write_text(GOOD)
    assert refused("shop_a:ap").message == "'shop_a' has no 'ap'"
    assert refused("shop_a:ap").hint == "It has: app"
    assert refused("shop_a:other").message == "'shop_a:other' is of type int, not an application"


@pytest.mark.parametrize(
    "text, said, line",
    [
        ("x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero", 2),
        ("import json\njson.loads('{')\n", "JSONDecodeError", 2),
        ("import no_such_thing\n", "No module named 'no_such_thing'", 1),
        ("x = 1\ndef f(:\n", "SyntaxError", 2),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3", 2),
    ],
)
def test_what_a_module_raises_is_told_with_its_line(
    folder: Path, text: str, said: str, line: int
) -> None:
    (folder / "broken.py").write_text(text)
    error = refused("broken:app")
    assert said in error.message
    assert error.hint.startswith(f"See {folder / 'broken.py'}:{line}: ")
    assert text.splitlines()[line - 1] in error.hint


def test_what_a_package_raises_is_told_with_its_line(folder: Path) -> None:
    (folder / "shaky").mkdir()
    (folder / "shaky" / "__init__.py").write_text("import no_such_thing\n")
    (folder / "shaky" / "part.py").write_text(GOOD)
    error = refused("shaky.part:app")
    assert "No module named 'no_such_thing'" in error.message
    assert "shaky/__init__.py:1" in error.hint


def test_a_declaration_that_is_wrong_keeps_its_kind_and_gets_its_line(folder: Path) -> None:
    (folder / "wrong.py").write_text("import headrace as hr\napp = hr.App('no blanks')\n")
    error = refused("wrong:app")
    assert error.hint.endswith(f"See {folder / 'wrong.py'}:2: app = hr.App('no blanks')")
    (folder / "wrong2.py").write_text(
        "import headrace as hr\n"
        "app = hr.App('shop')\n"
        "rows = app.topic('t', schema='a int, at timestamp', event_time='at')\n"
        "hr.filter(rows, 'bb > 1')\n"
    )
    error = refused("wrong2:app", InvalidPipeline)
    assert error.hint.count("wrong2.py:4: hr.filter(rows, 'bb > 1')") == 1
