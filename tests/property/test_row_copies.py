"""The copy of rows, in its table and in pages, has the rows that a plain dict has."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.cdc.contract import Row
from headrace.cdc.keys import key_column
from headrace.cdc.row_copy import RowCopy, TableChanges
from headrace.cdc.row_pages import NewPage, page_files
from tests.property.scripted_source import TABLES, ScriptedDatabase, ScriptedSource
from tests.property.scripts import quickly
from tests.property.test_captures import MEMORY

ITEMS = TABLES["a"]
ACTIONS = ("put", "delete", "same", "page", "page", "sweep", "open again")


@dataclass
class Model:
    """A copy, and what it should have: the row of each key, and the snapshot that saw it last."""

    path: Path
    random: Random
    rows: dict[str, tuple[Row, int]] = field(default_factory=dict)
    seen: int = 1
    pages: int = 0
    commits: int = 0

    def __post_init__(self) -> None:
        self.source = ScriptedSource(ScriptedDatabase(), self.random)
        self.open()

    def open(self) -> None:
        self.copy = RowCopy(self.path, self.source.rows)
        self.copy.tidy()
        self.copy.add("t", 1, ITEMS.columns)

    def commit(self, changes: TableChanges) -> None:
        before = str(self.commits) if self.commits else None
        self.commits += 1
        self.copy.commit(str(self.commits), [], {"t": changes}, after=before)

    def some(self, count: int) -> dict[str, Row]:
        numbers = sorted(self.random.sample(range(-20, 20), count))
        return {key(number): (number, "x", self.random.randrange(100)) for number in numbers}

    def do(self, action: str) -> None:
        found = self.some(self.random.randrange(1, 6))
        if action == "put":
            self.commit(TableChanges(self.seen, dict(found)))
            self.rows |= {name: (row, self.seen) for name, row in found.items()}
        elif action == "delete":
            self.commit(TableChanges(self.seen, dict.fromkeys(found)))
            self.rows = {name: row for name, row in self.rows.items() if name not in found}
        elif action == "same":
            there = [name for name in found if name in self.rows]
            self.commit(TableChanges(self.seen, same=there))
            self.rows |= {name: (self.rows[name][0], self.seen) for name in there}
        elif action == "page":
            self.page(found)
        elif action == "sweep":
            self.seen += 1
            self.do("same")
            self.sweep()
        else:
            self.copy.close()
            self.open()

    def page(self, found: dict[str, Row]) -> None:
        """Rows in a range of keys that are not there, as the chunk of a snapshot has them."""
        held = self.copy.held("t", pa.array(found, pa.string()))
        rows = [row for name, row in found.items() if name not in held]
        values = self.source.columns(ITEMS.columns, rows)
        new = NewPage(ITEMS, key_column(ITEMS, values), values)
        if rows and self.copy.has_place("t", new):
            self.pages += 1
            self.commit(TableChanges(self.seen, page=new))
            self.rows |= {key(row[0]): (row, self.seen) for row in rows}

    def sweep(self) -> None:
        """Delete what the snapshot did not see."""
        swept: set[str] = set()
        while found := self.copy.page("t", unseen_by=self.seen):
            assert all(self.rows[name][0] == row for name, row in found)
            swept |= {name for name, _ in found}
            self.commit(TableChanges(self.seen, {name: None for name, _ in found}))
        assert swept == {name for name, (_, seen) in self.rows.items() if seen < self.seen}
        self.rows = {name: row for name, row in self.rows.items() if name not in swept}

    def check(self) -> None:
        rows = {name: row for name, (row, _) in self.rows.items()}
        keys = [key(number) for number in range(-20, 20)]
        self.random.shuffle(keys)
        assert self.copy.rows("t", keys) == rows
        assert dict(self.copy.all("t")) == rows
        assert self.copy.count("t") == len(rows)
        for number in (self.seen, self.seen + 1):
            unseen = {name for name, (_, seen) in self.rows.items() if seen < number}
            assert self.copy.unseen("t", keys, number) == unseen


def key(number: int) -> str:
    return f'{{"id":{number}}}'


def test_rows_are_found_in_the_table_and_in_pages() -> None:
    pages: list[int] = []

    @quickly(60)
    @given(
        st.lists(st.sampled_from(ACTIONS), min_size=3, max_size=25),
        st.randoms(use_true_random=False),
    )
    def check(actions: list[str], random: Random) -> None:
        memory = MEMORY if Path(MEMORY).is_dir() else None
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            model = Model(Path(folder) / "p.db", random)
            for action in actions:
                model.do(action)
                model.check()
            model.copy.clear()
            assert not page_files(model.path)
            model.copy.close()
            pages.append(model.pages)

    check()
    assert sum(pages) > 60


def test_a_page_in_an_older_layout_gives_the_columns_that_are_still_there(tmp_path: Path) -> None:
    model = Model(tmp_path / "p.db", Random(1))
    model.page({key(1): (1, "x", 5), key(2): (2, "y", 6)})
    columns = pa.schema([("size", pa.int64()), ("id", pa.int64()), ("new", pa.string())])
    model.copy.add("t", 1, columns)
    assert model.copy.rows("t", [key(2)]) == {key(2): (6, 2, None)}
    model.copy.close()


def test_files_of_pages_that_no_commit_has_are_removed(tmp_path: Path) -> None:
    model = Model(tmp_path / "p.db", Random(1))
    model.page({key(1): (1, "x", 5)})
    (tmp_path / "p.db.77.page").write_bytes(b"of a commit that was killed")
    (tmp_path / "p.db.77.db.1.page").write_bytes(b"of another capture")
    model.do("open again")
    assert sorted(path.name for path in tmp_path.glob("*.page")) == [
        "p.db.1.page",
        "p.db.77.db.1.page",
    ]
    assert model.copy.rows("t", [key(1)]) == {key(1): (1, "x", 5)}
    model.copy.close()


def test_a_copy_that_has_lost_a_page_is_made_again(tmp_path: Path) -> None:
    model = Model(tmp_path / "p.db", Random(1))
    model.page({key(1): (1, "x", 5)})
    model.copy.close()
    (tmp_path / "p.db.1.page").unlink()
    with RowCopy(model.path, model.source.rows) as copy:
        assert copy.mark is None
