"""Databases by their address. Their clients are imported only when they are needed."""

from __future__ import annotations

import difflib
import importlib
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import apsw

from headrace.cdc.attachment import Attachment
from headrace.cdc.contract import Source
from headrace.errors import InvalidSetting, MissingExtra, SourceError

_SCHEMES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_EXAMPLES = (
    "shop.db, a file of SQLite; postgresql://USER@HOST/DATABASE; or mysql://USER@HOST/DATABASE"
)
_EXTRAS = {"postgresql": "postgres", "mysql": "mysql"}
_PACKAGES = ("psycopg2", "pymysqlreplication", "pymysql")

_TABLES = {
    "postgresql": "SELECT n.nspname, c.relname FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p' "
    "AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%' ORDER BY 1, 2",
    "mysql": "SELECT table_schema, table_name FROM information_schema.tables "
    "WHERE table_schema = database() AND table_type = 'BASE TABLE' ORDER BY 1, 2",
    "sqlite": "SELECT 'main', name FROM sqlite_schema WHERE type = 'table' "
    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT LIKE '\\_headrace\\_%' ESCAPE '\\' "
    "AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name",
}


@dataclass(frozen=True)
class Database:
    """A database: its kind, its address without the password, and the password if one is known."""

    kind: str
    address: str
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> Database:
        """Read a path, or a URL. Errors do not quote a URL, since it may have a password."""
        scheme, colon, rest = text.partition(":")
        if not colon or "/" in scheme or (len(scheme) == 1 and scheme not in _SCHEMES):
            return cls("sqlite", f"sqlite:{_existing(text)}")
        if scheme not in _SCHEMES:
            near = difflib.get_close_matches(scheme, _SCHEMES, 1)
            raise InvalidSetting(
                f"{scheme + ':...'!r} is not the address of a database that can be captured",
                hint=f"Did you mean {near[0]}:?" if near else f"Use {_EXAMPLES}",
            )
        if scheme == "sqlite":
            return cls("sqlite", f"sqlite:{_existing(rest.removeprefix('//'))}")
        parts = urlsplit(text)
        if not parts.netloc or not parts.path.strip("/"):
            raise InvalidSetting(
                "The address of the database lacks a host or the name of the database",
                hint=f"Use {_EXAMPLES}",
            )
        login, at, host = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        kind = _SCHEMES[scheme]
        bare = urlunsplit((kind, f"{user}{at}{host}", parts.path, parts.query, ""))
        return cls(kind, bare, unquote(password) or None)

    @property
    def name(self) -> str:
        """The name of the database: that of its file without the suffix."""
        if self.kind == "sqlite":
            return Path(self.address.removeprefix("sqlite:")).stem
        return unquote(urlsplit(self.address).path.strip("/"))

    @property
    def url(self) -> str:
        """The address with the password."""
        if self.password is None:
            return self.address
        parts = urlsplit(self.address)
        user, _, host = parts.netloc.rpartition("@")
        login = f"{user}:{quote(self.password, safe='')}@{host}"
        return urlunsplit((parts.scheme, login, parts.path, parts.query, ""))

    def tables(self) -> list[tuple[str, str]]:
        """All tables there are, each a schema and a name."""
        if self.kind == "sqlite":
            return _sqlite_tables(Path(self.address.removeprefix("sqlite:")))
        module = _module(self.kind, "address" if self.kind == "postgresql" else "connection")
        connection = module.Address.parse(self.url).connect()
        with closing(connection), connection.cursor() as cursor:
            cursor.execute(_TABLES[self.kind])
            return [(str(schema), str(name)) for schema, name in cursor.fetchall()]


def database_of(attachment: Attachment) -> Database:
    """The database of an attachment, with its password."""
    return Database(attachment.kind, attachment.address, attachment.password())


def open_source(attachment: Attachment, database: Database | None = None) -> Source:
    """The source of changes of an attached database."""
    url = (database or database_of(attachment)).url
    module = _module(attachment.kind, "source")
    if attachment.kind == "sqlite":
        source = module.SqliteSource(
            Path(url.removeprefix("sqlite:")),
            tables=[name.partition(".")[2] for name in attachment.tables],
        )
    elif attachment.kind == "mysql":
        source = module.MySqlSource(url, attachment.tables)
    else:
        source = module.PostgresSource(
            url, attachment.tables, slot=attachment.slot, publication=attachment.publication
        )
    made: Source = source
    return made


def _module(kind: str, name: str) -> Any:
    folder = {"postgresql": "postgres"}.get(kind, kind)
    try:
        return importlib.import_module(f"headrace.cdc.{folder}.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _PACKAGES:
            raise
        raise MissingExtra(
            f"To capture this database, the package {error.name!r} is needed",
            hint=f"pip install 'headrace[{_EXTRAS[kind]}]'",
        ) from None


def _existing(text: str) -> Path:
    """The path of an existing file."""
    path = Path(text).expanduser().resolve()
    if path.is_file():
        return path
    if path.is_dir():
        raise InvalidSetting(f"{text} is a folder", hint=f"Use {_EXAMPLES}")
    near = []
    if path.parent.is_dir():
        names = [other.name for other in path.parent.iterdir() if other.is_file()]
        near = difflib.get_close_matches(path.name, names, 1)
    raise InvalidSetting(
        f"There is no file {text}",
        hint=f"Did you mean {near[0]!r}?" if near else f"Use {_EXAMPLES}",
    )


def _sqlite_tables(path: Path) -> list[tuple[str, str]]:
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            return [(str(schema), str(name)) for schema, name in db.execute(_TABLES["sqlite"])]
    except apsw.NotADBError:
        raise InvalidSetting(f"{path} is not a SQLite database", hint=f"Use {_EXAMPLES}") from None
    except apsw.Error as error:
        raise SourceError(f"{path}: {error}", hint="Check that it can be read") from None
