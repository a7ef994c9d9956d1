"""An SQL file is an application; its errors name file, line and column."""

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
    ("CREATE TOPIC v (at TIMESTAMP) WITH (event_time = 'att')", "'att' that is not in", "1:1"),
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
    (TOPIC + VIEW.replace("TUMBLE(at, INTERVAL '1 minute')", "RUNNING(at, FOREVER)")
     + "CREATE STREAM more AS SELECT * FROM hits WHERE n > 1", "none is final", "4:37"),
    (TOPIC + VIEW.replace(" GROUP BY url, TUMBLE(at, INTERVAL '1 minute')", ""), "never", "3:13"),
    (TOPIC + "CREATE VIEW v WITH (delay = '1 s', grace = '1 s') AS\nSELECT url FROM views",
     "no GROUP BY", "3:1"),
    (TOPIC + "CREATE VIEW v WITH (key = 'uri') AS\nSELECT url FROM views", "'uri' to keep", "2:1"),
    (TOPIC + VIEW + "CREATE STREAM s WITH (grace = '1 s') AS SELECT url FROM hits",
     "not use 'grace'", "4:31"),
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


SEED_004 = """\
    CREATE TABLE clicks (
        user_id STRING,
        url STRING,
        click_time TIMESTAMP(3),
        WATERMARK FOR click_time AS click_time - INTERVAL '5' SECOND
    ) WITH (
        'connector' = 'kafka',
        'topic' = 'user-clicks',
        'properties.bootstrap.servers' = 'broker:9092',
        'format' = 'json'
    );
"""
CLICKS = """\
CREATE VIEW clicks_per_user AS
SELECT user_id, window_start, window_end, COUNT(url) AS click_count
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(click_time), INTERVAL '5' MINUTES))
GROUP BY user_id, window_start, window_end;
"""


def test_the_registry_of_flinks_format_is_part_of_the_logs_address(folder: Path) -> None:
    registry = "'avro-confluent.url' = 'http://registry:8081', 'format' = 'avro-confluent'"
    wire = SEED_004.replace("'format' = 'json'", registry)
    other = SEED_004.replace("clicks", "views")
    for first, second in ((wire, other), (other, wire)):
        (folder / "shop.sql").write_text(first + second + CLICKS)
        app = load_app("shop.sql")
        assert app.log == "kafka://broker:9092?schema.registry.url=http://registry:8081"
        formats = {name: topic.settings.format for name, topic in app.topics.items()}
        assert formats == {"user-clicks": "avro-confluent", "user-views": "json"}


def clicks_app(**lateness: timedelta) -> hr.App:
    app = hr.App("shop", log="kafka://broker:9092")
    clicks = app.topic(
        "user-clicks",
        schema="user_id string, url string, click_time timestamp",
        event_time="click_time",
    )
    given = {"delay": timedelta(seconds=5), "grace": timedelta(0), **lateness}
    counted = hr.aggregate(
        clicks,
        by="user_id",
        window=hr.tumbling(timedelta(minutes=5)),
        lateness=hr.Lateness(**given),
        click_count=hr.count("url"),
    )
    app.view("clicks_per_user", counted)
    return app


def check_same(made: hr.App, other: hr.App) -> None:
    """Check that both applications have the same topics, log and steps."""
    assert (made.name, made.log, made.topics) == (other.name, other.log, other.topics)
    for one, same in zip(steps_of(made), steps_of(other), strict=True):
        assert one.stream == same.stream
        assert definition_of(one) == definition_of(same)


def test_the_source_of_seed_004_is_declared_as_it_is_written(folder: Path) -> None:
    check_same(loaded(SEED_004 + CLICKS), clicks_app())


ROWTIME = """\
CREATE TABLE payments (
    country STRING, ts BIGINT,
    rowtime AS TO_TIMESTAMP_LTZ(ts, 3),
    WATERMARK FOR rowtime AS rowtime - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka');
CREATE VIEW per_minute AS
SELECT country, window_start, COUNT(*) AS payments
FROM TABLE(TUMBLE(TABLE payments, DESCRIPTOR(rowtime), INTERVAL '1' MINUTE))
GROUP BY country, window_start, window_end;
"""


def test_flinks_rowtime_of_epoch_milliseconds_is_the_event_time(folder: Path) -> None:
    app = hr.App("shop")
    payments = app.topic(
        "payments", schema="country string, ts bigint", event_time="timestamp_millis(ts)"
    )
    counted = hr.aggregate(
        hr.derive(payments, rowtime="timestamp_millis(ts)"),
        by="country",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(delay=timedelta(seconds=5), grace=timedelta(0)),
        payments=hr.count(),
    )
    app.view("per_minute", counted)
    check_same(loaded(ROWTIME), app)


def test_a_view_may_have_another_lateness_than_the_watermark(folder: Path) -> None:
    minute = timedelta(minutes=1)
    graced = CLICKS.replace(" AS\n", " WITH (grace = '1 minute') AS\n")
    check_same(loaded(SEED_004 + graced), clicks_app(grace=minute))
    both = CLICKS.replace(" AS\n", " WITH (delay = '1 minute', grace = '1 minute') AS\n")
    check_same(loaded(SEED_004 + both), clicks_app(delay=minute, grace=minute))


def test_a_table_has_the_types_and_properties_of_flink(folder: Path) -> None:
    made = loaded(
        "CREATE TABLE a (id BIGINT NOT NULL, raw BYTES, name VARCHAR, b ROW<at TIMESTAMP_LTZ(3), "
        "m MAP<STRING, INT>>, paid DECIMAL(10, 2), at TIMESTAMP_LTZ(6), WATERMARK FOR at AS at)\n"
        "WITH ('connector' = 'kafka', 'key.fields' = 'id', 'value.format' = 'avro', "
        "'scan.startup.mode' = 'earliest-offset', 'properties.group.id' = 'g', partitions = 3);"
    )
    same = hr.App("shop")
    same.topic(
        "a",
        schema="id bigint not null, raw binary, name string, b struct<at: timestamp, "
        "m: map<string, int>>, paid decimal(10, 2), at timestamp",
        event_time="at",
        key="id",
        partitions=3,
        settings={"format": "avro"},
    )
    assert (made.topics, made.log) == (same.topics, None)


JOINS = """\
CREATE TABLE orders (id STRING, currency STRING, price INT, at TIMESTAMP(3),
    WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH ('connector' = 'kafka');
CREATE TABLE sent (order_id STRING, sent_at TIMESTAMP(3),
    WATERMARK FOR sent_at AS sent_at - INTERVAL '1' MINUTE) WITH ('connector' = 'kafka');
CREATE TABLE rates (currency STRING, rate DOUBLE, since TIMESTAMP(3),
    WATERMARK FOR since AS since - INTERVAL '5' SECOND,
    PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE names (code STRING PRIMARY KEY NOT ENFORCED, name STRING, added TIMESTAMP(3),
    WATERMARK FOR added AS added - INTERVAL '5' SECOND) WITH ('connector' = 'upsert-kafka');

CREATE STREAM shipped AS
SELECT * FROM orders o, sent s
WHERE o.id = s.order_id AND sent_at BETWEEN at AND at + INTERVAL '4' HOUR;
CREATE STREAM converted WITH (wait = '1 minute') AS
SELECT * FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency;
CREATE STREAM once WITH (ttl = '1 day') AS
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY at) AS n FROM orders)
WHERE n = 1;
CREATE VIEW currencies AS SELECT * FROM rates JOIN names ON rates.currency = names.code;
CREATE VIEW best AS
SELECT * FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY paid DESC) AS n
    FROM (SELECT currency, SUM(price) AS paid FROM TABLE(TUMBLE(TABLE orders, INTERVAL '1' HOUR))
          GROUP BY window_start, window_end, currency))
WHERE n <= 3;
PUBLISH shipped TO 'shipped';
PUBLISH LATE OF shipped TO 'shipped.late';
PUBLISH converted TO 'converted';
PUBLISH once TO 'once';
PUBLISH LATE OF best TO 'best.late';
"""


def test_a_watermark_is_the_delay_of_joins_and_duplicates_too(folder: Path) -> None:
    second, minute, hour = (timedelta(seconds=n) for n in (1, 60, 3600))
    app = hr.App("shop")
    orders = app.topic(
        "orders", schema="id string, currency string, price int, at timestamp", event_time="at"
    )
    sent = app.topic("sent", schema="order_id string, sent_at timestamp", event_time="sent_at")
    rates = app.topic(
        "rates",
        schema="currency string, rate double, since timestamp",
        event_time="since",
        key="currency",
    )
    names = app.topic(
        "names", schema="code string, name string, added timestamp", event_time="added", key="code"
    )
    shipped = hr.join(orders, sent, on={"id": "order_id"}, after=4 * hour, delay=minute)
    known = hr.table(rates, key="currency")
    paid = hr.aggregate(
        orders,
        by="currency",
        window=hr.tumbling(hour),
        lateness=hr.Lateness(delay=5 * second, grace=timedelta(0)),
        paid=hr.sum("price"),
    )
    best = hr.top(paid, 3, by="paid")
    app.view(
        "currencies", hr.join_tables(known, hr.table(names, key="code"), on={"currency": "code"})
    )
    app.view("best", best)
    app.publish("shipped", shipped)
    app.publish("shipped.late", shipped.late)
    app.publish("converted", hr.enrich(orders, known, on="currency", wait=minute))
    app.publish("once", hr.deduplicate(orders, by="id", ttl=24 * hour, delay=5 * second))
    app.publish("best.late", paid.late)
    check_same(loaded(JOINS), app)


FLINK_BID = """\
CREATE TABLE Bid (bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING,
    WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND) WITH ('connector' = 'kafka');
"""
TABLE = "CREATE TABLE v (at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ("
FLINK_REFUSED = [
    ("CREATE TABLE v (at TIMESTAMP(3)) WITH ('connector' = 'kafka')", "is the event time", "1:1"),
    ("CREATE TABLE v (at TIMESTAMP(3), WATERMARK FOR at AS now()) WITH ('format' = 'json')",
     "its column less a delay", "1:34"),
    ("CREATE TABLE v (at TIMESTAMP(3), WATERMARK FOR at AS at + INTERVAL '1' DAY)",
     "its column less a delay", "1:34"),
    ("CREATE TABLE v (at TIMESTAMP(3), WATERMARK FOR at AS at - 5)", "not an interval", "1:59"),
    ("CREATE TABLE v (at TIMESTAMP(3), WATERMARK FOR att AS att)", "'att' that is not in", "1:1"),
    ("CREATE TABLE v (at TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR at AS at)",
     "no processing time", "1:39"),
    ("CREATE TABLE v (ts BIGINT, at AS TO_TIMESTAMP_LTZ(ts, 6), WATERMARK FOR at AS at)",
     "is not a time", "1:34"),
    ("CREATE TABLE v (ts BIGINT, at AS TO_TIMESTAMP_LTZ(tz, 3), WATERMARK FOR at AS at)",
     "'tz'", "1:1"),
    ("CREATE TABLE v (id INT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(3), n AS id + 1, "
     "WATERMARK FOR at AS at)", "the columns of its rows", "1:72"),
    ("CREATE TABLE v (at TIMESTAMP(3) METADATA FROM 'timestamp', WATERMARK FOR at AS at)",
     "not in the rows of the topic", "1:17"),
    ("CREATE TABLE v (at TIMESTAMP(3), PRIMARY KEY id, WATERMARK FOR at AS at)",
     "not a primary key", "1:34"),
    (f"{TABLE}'connector' = 'datagen')", "no connector 'datagen'", "1:78"),
    (f"{TABLE}'format' = 'csv')", "'csv'", "1:75"),
    (f"{TABLE}'scan.startup.mode' = 'latest-offset')", "from its beginning", "1:86"),
    (f"{TABLE}'properties.security.protocol' = 'SSL')", "a setting of the log", "1:97"),
    (f"{TABLE}event_time = 'at')", "already names the event time", "1:77"),
    (f"{TABLE}'format' = 'protobuf-confluent')", "Protobuf cannot be read", "1:75"),
    (f"{TABLE}'avro-confluent.url' = 'http://r')", "belongs to the log", "1:87"),
    (f"{TABLE}'avro-confluent.basic-auth.user-info' = 'a:b')", "may be a secret", "1:104"),
    ("CREATE APPLICATION a WITH (log = 'file:./data');\n"
     f"{TABLE}'properties.bootstrap.servers' = 'b:9092')", "one log", "2:97"),
    (FLINK_BID + "SELECT * FROM Bid", "not a statement of a pipeline", "3:1"),
    (FLINK_BID + "INSERT INTO x SELECT * FROM Bid", "not a statement of a pipeline", "3:1"),
    (JOINS.replace("ttl = '1 day'", "wait = '1 day', ttl = '1 day'"), "not use 'wait'", "16:33"),
    (JOINS.replace(" WITH (ttl = '1 day')", ""), "does not say its ttl", "17:45"),
    (JOINS.replace("VIEW currencies AS", "VIEW currencies WITH (delay = '1 s') AS"),
     "does not use 'delay'", "19:38"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says", "place"), FLINK_REFUSED)
def test_a_declaration_of_flink_that_cannot_be_is_refused_at_its_place(
    folder: Path, text: str, says: str, place: str
) -> None:
    test_a_file_is_refused_at_its_line_and_column(folder, text, says, place)
