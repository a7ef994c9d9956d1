"""A file of SQL is an application; what is wrong with it is told with file, line and column."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.cli.loading import load_app
from headrace.errors import HeadraceError, InvalidName, InvalidSchema, InvalidSetting, UserError
from headrace.plan.steps import definition_of, fingerprint, steps_of

PIPELINES = Path(__file__).parents[2] / "pipelines"

TOPIC = "CREATE TOPIC views (url STRING, ms INT, at TIMESTAMP) WITH (event_time = 'at');\n"
VIEW = """\
CREATE VIEW hits WITH (delay = '10 seconds', grace = '1 minute') AS
SELECT url, COUNT(*) AS n FROM views GROUP BY url, TUMBLE(at, INTERVAL '1 minute');
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loaded(text: str, name: str = "shop.sql") -> hr.App:
    Path(name).write_text(text)
    return load_app(name)


def refused(text: str, kind: type[HeadraceError] = UserError) -> HeadraceError:
    with pytest.raises(kind) as caught:
        loaded(text)
    return caught.value


def test_the_page_views_are_the_same_pipeline_in_both_languages() -> None:
    in_sql = hr.load_sql(PIPELINES / "pageviews.sql")
    in_python = load_app(f"{PIPELINES / 'pageviews.py'}:app")
    assert (in_sql.name, in_sql.log, in_sql.topics) == (
        in_python.name,
        in_python.log,
        in_python.topics,
    )
    for one, other in zip(steps_of(in_sql), steps_of(in_python), strict=True):
        assert definition_of(one) == definition_of(other)
        assert fingerprint(one) == fingerprint(other)
        assert (one.name, one.outputs, one.late) == (other.name, other.outputs, other.late)


def test_an_application_is_called_after_its_file_unless_it_says_otherwise(folder: Path) -> None:
    assert loaded(TOPIC).name == "shop"
    named = loaded(f"CREATE APPLICATION corner WITH (log = 'file:./here');\n{TOPIC}")
    assert (named.name, named.log) == ("corner", "file:./here")


def test_a_topic_has_what_a_topic_of_python_has(folder: Path) -> None:
    made = loaded(
        "CREATE TOPIC `page-views` (url STRING NOT NULL, place STRUCT<lat: DOUBLE>, at TIMESTAMP)\n"
        "WITH (key = 'url', event_time = 'at', partitions = 2, retention = '7d', skew = '1h');"
    )
    same = hr.App("shop")
    same.topic(
        "page-views",
        schema="url string not null, place struct<lat: double>, at timestamp",
        key="url",
        event_time="at",
        partitions=2,
        settings={"retention": "7d", "skew": timedelta(hours=1)},
    )
    assert made.topics == same.topics


def test_streams_are_read_by_the_statements_below_them(folder: Path) -> None:
    made = loaded(
        TOPIC
        + "CREATE STREAM slow AS SELECT * FROM views WHERE ms > 100;\n"
        + "PUBLISH slow TO 'views.slow';\n"
        + VIEW.replace("FROM views", "FROM slow").replace("grace", "emit = 'final', grace")
        + "PUBLISH hits TO hits.updates;\n"
        + "publish late of hits to 'hits.late';\n"
    )
    same = hr.App("shop")
    views = same.topic("views", schema="url string, ms int, at timestamp", event_time="at")
    slow = hr.filter(views, "ms > 100")
    hits = hr.aggregate(
        slow,
        by="url",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(delay=timedelta(seconds=10), grace=timedelta(minutes=1)),
        emit="final",
        n=hr.count(),
    )
    same.view("hits", hits)
    same.publish("views.slow", slow)
    same.publish("hits.updates", hits)
    same.publish("hits.late", hits.late)
    found, wanted = ({step.name: step for step in steps_of(app)} for app in (made, same))
    assert list(found) == list(wanted) == ["hits", "views.slow"]
    for name, step in found.items():
        assert fingerprint(step) == fingerprint(wanted[name])
        assert (step.outputs, step.late) == (wanted[name].outputs, wanted[name].late)


def test_what_spark_may_refuse_later_has_its_place_in_the_file(folder: Path) -> None:
    hits = loaded(TOPIC + VIEW).views["hits"]
    assert str(hits.where).startswith("shop.sql:2:1: CREATE VIEW hits")
    assert str(hits.stream.where).startswith("shop.sql:3:1: SELECT url, COUNT(*)")


REFUSED = [
    ("CREATE TOPIC v (url STRIN, at TIMESTAMP) WITH (event_time = 'at')", "'STRIN'", "1:17"),
    ("CREATE TOPIC v (at TIMESTAMP) WITH (event_time = 'att')", "'att' is not in", "1:1"),
    ("CREATE TOPIC v (at TIMESTAMP)", "which column is the event time", "1:1"),
    ("CREATE TOPIC v WITH (event_time = 'at')", "no columns", "1:16"),
    ("CREATE TOPIC v (at TIMESTAMP) WITH (event_time = 'at', skwe = '1h')", "'skwe'", "1:63"),
    ("CREATE TOPIC v (at TIMESTAMP) WITH (event_time = 'at', skew = 'long')", "'long'", "1:63"),
    ("CREATE TOPIC v (at TIMESTAMP) WITH (event_time = 'at', partitions = 0)", "be 0 part", "1:69"),
    ("CREATE TOPIC v (at TIMESTAMP) WITH (event_time)", "name = value", "1:37"),
    ("CREATE TOPIC v (at TIMESTAMP) WITH (key = 'a', key = 'b')", "given twice", "1:48"),
    ("CREATE TOPIC v (at TIMESTAMP WITH (event_time = 'at');", "not closed", "1:16"),
    (TOPIC + TOPIC, "'views' is taken", "2:14"),
    (TOPIC + VIEW.replace("delay = '10 seconds', ", ""), "does not say its delay", "2:13"),
    (TOPIC + VIEW.replace(", grace = '1 minute'", ""), "does not say its grace", "2:13"),
    (TOPIC + VIEW.replace("10 seconds", "a while"), "'a while' is not a duration", "2:32"),
    (TOPIC + VIEW.replace("grace", "emit = 'now', grace"), "emit cannot be 'now'", "2:53"),
    (TOPIC + VIEW.replace("grace", "graze"), "no property 'graze'", "2:46"),
    (TOPIC + VIEW.replace("grace", "key = 'url', grace"), "not unique", "2:1"),
    (TOPIC + VIEW.replace("url,", "uri,"), "no column 'uri'", "3:8"),
    (TOPIC + VIEW.replace("TUMBLE(at", "TUMBLE(ms"), "'ms' is not it", "3:59"),
    (TOPIC + VIEW + VIEW.replace("hits", "more").replace("views", "hits"), "results", "5:32"),
    (TOPIC + VIEW.replace(" GROUP BY url, TUMBLE(at, INTERVAL '1 minute')", ""), "never", "3:13"),
    (TOPIC + "CREATE VIEW v WITH (delay = '1 s', grace = '1 s') AS\nSELECT url FROM views",
     "no GROUP BY", "3:1"),
    (TOPIC + VIEW.replace("VIEW hits WITH (delay = '10 seconds', grace = '1 minute')", "STREAM s"),
     "how late a row may be", "3:52"),
    (TOPIC + "CREATE STREAM s", "a query are missing", "2:16"),
    (TOPIC + "CREATE STREAM s AS SELECT * FROM views LIMIT 1", "LIMIT", "2:40"),
    (TOPIC + "PUBLISH viws TO 'x'", "'viws' above", "2:9"),
    (TOPIC + "PUBLISH views", "does not name a topic", "2:14"),
    (TOPIC + "PUBLISH views TO 'x' NOW", "'NOW' is not expected", "2:22"),
    (TOPIC + "PUBLISH views TO 'not this'", "'not this' is not", "2:1"),
    (TOPIC + "PUBLISH LATE OF views TO 'x'", "no late rows", "2:17"),
    (TOPIC + "CREATE APPLICATION late", "once, at the top", "2:1"),
    ("CREATE APPLICATION 'not this'", "'not this' is not", "1:1"),
    (TOPIC + "DROP TOPIC views", "not a statement of a pipeline", "2:1"),
    (TOPIC + "\nCREATE STREAM s AS SELECT 'a FROM views;\n", "does not end", "3:1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says", "place"), REFUSED)
def test_a_file_is_refused_at_its_line_and_column(
    folder: Path, text: str, says: str, place: str
) -> None:
    error = refused(text)
    assert says in error.message
    line = text.splitlines()[int(place.partition(":")[0]) - 1]
    end = f"See shop.sql:{place}"
    assert error.hint.endswith((f"{end}: {line.strip()}", end))


def test_errors_keep_their_kind(folder: Path) -> None:
    topic = "CREATE TOPIC v (at {}) WITH (event_time = 'at', skew = '{}')"
    refused(topic.format("TIMESTAMPS", "1h"), InvalidSchema)
    refused(topic.format("TIMESTAMP", "1 mile"), InvalidSetting)
    refused("CREATE APPLICATION `a b`", InvalidName)


def test_a_file_with_nothing_in_it_is_refused(folder: Path) -> None:
    assert refused("-- soon\n").message == "shop.sql declares nothing"


def test_a_file_that_is_not_there_is_said_to_be_missing(folder: Path) -> None:
    with pytest.raises(UserError, match=r"There is no file no/such\.sql"):
        load_app("no/such.sql")


def test_a_file_that_is_no_text_is_refused(folder: Path) -> None:
    Path("shop.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"shop\.sql cannot be read"):
        load_app("shop.sql")


def test_a_file_of_sql_has_one_application(folder: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_app("shop.sql:app")
    assert caught.value.hint == "An SQL file is one application: write shop.sql"
