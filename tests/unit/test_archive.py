"""A class archive belongs to one Java and one class path, and is complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.servers.java import archive


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the place of Java, and an empty cache."""
    command = tmp_path / "java"
    command.write_text("17")
    monkeypatch.setattr(archive, "java", lambda: str(command))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return command


def make(class_path: str, text: str = "classes") -> bool:
    """True if an archive was made."""
    with archive.making("spark", class_path) as option:
        if option is None:
            return False
        Path(option.partition("=")[2]).write_text(text)
        return True


def test_an_archive_is_used_once_it_is_there(java: Path) -> None:
    assert archive.options("spark", "a.jar") == ()
    assert make("a.jar")
    (option, *_) = archive.options("spark", "a.jar")
    assert Path(option.removeprefix("-XX:SharedArchiveFile=")).read_text() == "classes"
    assert not make("a.jar"), "it is made once"


def test_another_java_another_class_path_or_other_jars_have_another_archive(
    java: Path, tmp_path: Path
) -> None:
    jar = tmp_path / "a.jar"
    jar.write_text("a")
    assert make(str(jar))
    assert archive.options("spark", "b.jar") == ()
    assert archive.options("kafka", str(jar)) == ()
    jar.write_text("changed")
    assert archive.options("spark", str(jar)) == ()
    jar.write_text("a")
    java.write_text("21.0")
    assert archive.options("spark", str(jar)) == ()


def test_a_java_that_makes_none_or_breaks_off_leaves_nothing(java: Path) -> None:
    with archive.making("spark", "a.jar"):
        pass
    with pytest.raises(KeyboardInterrupt), archive.making("spark", "a.jar") as option:
        assert option is not None
        Path(option.partition("=")[2]).write_text("half of it")
        raise KeyboardInterrupt
    assert archive.options("spark", "a.jar") == ()
    assert list(archive.archive("spark", "a.jar").parent.iterdir()) == []


def test_of_two_processes_at_once_one_makes_it(java: Path) -> None:
    with archive.making("spark", "a.jar") as option:
        assert option is not None
        assert not make("a.jar", "the other's")
        Path(option.partition("=")[2]).write_text("ours")
    assert archive.archive("spark", "a.jar").read_text() == "ours"
    assert [file.suffix for file in archive.archive("spark", "a.jar").parent.iterdir()] == [".jsa"]


def test_a_few_archives_are_kept(java: Path) -> None:
    for number in range(5):
        assert make(f"{number}.jar")
    folder = archive.archive("spark", "0.jar").parent
    assert len(list(folder.iterdir())) == 3
    assert archive.options("spark", "4.jar")
