"""Topics in the studio: the list, one topic, and its records found with bounded work."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headrace.log import Log, Record
from headrace.log.dead_letter import DEAD_LETTER
from headrace.studio.live import browsing
from headrace.studio.live.browsing import Wanted, browse
from tests.bank import ACCOUNT, Open, bank
from tests.studio.logs import client_of, log_at

SCRIPT = "<script>alert(1)</script>"
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with log_at(tmp_path) as log:
        yield log


@pytest.fixture
def client(log: Log) -> Iterator[TestClient]:
    with client_of(log) as client:
        yield client


def _fill(log: Log, *, partitions: int = 3, commits: int = 7, rows: int = 11) -> list[Record]:
    """A topic with rows of users 0 to 4, in several commits."""
    log.create_topic(
        "views", partitions=partitions, schema="user string, n bigint, at timestamp", key="user",
        event_time="at",
    )  # fmt: skip
    with log.producer(acks="written") as producer:
        for commit in range(commits):
            for row in range(rows):
                n = commit * rows + row
                at = START + timedelta(seconds=n)
                producer.send("views", {"user": f"u{n % 5}", "n": n, "at": at})
            producer.flush()
    return [record for batch in log.read("views") for record in batch.records()]


def _all_pages(log: Log, **wanted: Any) -> list[list[Record]]:
    pages, cursor = [], ""
    while True:
        asked = Wanted(**wanted, cursor=cursor)
        found = browse(log, log.topic("views"), asked)
        pages.append(found.records)
        if found.cursor is None:
            return pages
        cursor = found.cursor


def _places(records: list[Record]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


@pytest.mark.parametrize("at", ["", "earliest"])
@pytest.mark.parametrize("limit", [1, 4, 50])
def test_pages_have_each_record_once_and_in_order(log: Log, at: str, limit: int) -> None:
    written = _fill(log)
    pages = _all_pages(log, at=at, limit=limit)
    found = [record for page in pages for record in page]
    assert sorted(_places(found)) == sorted(_places(written))
    commits = [record.commit or 0 for record in found]
    assert commits == sorted(commits, reverse=not at)
    assert all(len(page) == limit for page in pages[:-2])


@pytest.mark.parametrize(
    "wanted", [{"key": "u3"}, {"text": "U3"}, {"text": "u3", "at": "earliest"}]
)
def test_a_search_finds_each_match_once(log: Log, wanted: dict[str, str]) -> None:
    written = _fill(log)
    found = [record for page in _all_pages(log, limit=4, **wanted) for record in page]
    expected = [record for record in written if record.key == "u3"]
    assert sorted(_places(found)) == sorted(_places(expected))


def test_a_search_reads_a_bounded_number_of_rows_and_its_cursor_searches_on(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(log, partitions=1, commits=3, rows=1000)
    monkeypatch.setattr(browsing, "SEARCHED", 1000)
    monkeypatch.setattr(browsing, "_BLOCK_ROWS", 500)
    first = browse(log, log.topic("views"), Wanted(text="u0", key="u1"))
    assert (first.records, first.scanned) == ([], 1000)
    assert "Searched 1,000 rows" in first.notes[0]
    pages = _all_pages(log, text="u0", key="u1")
    assert (len(pages), sum(map(len, pages))) == (3, 0)


@pytest.mark.parametrize("partitions", [3, 12])
def test_older_pages_do_not_move_when_records_are_added(
    log: Log, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    monkeypatch.setattr(browsing, "_PARTITIONS", 1)
    written = _fill(log, partitions=partitions)
    first = browse(log, log.topic("views"), Wanted(limit=5))
    with log.producer() as producer:
        for n in range(50):
            row = {"user": f"u{n}", "n": n, "at": START}
            producer.send("views", row, partition=n % partitions)
    second = browse(log, log.topic("views"), Wanted(limit=100, cursor=first.cursor or ""))
    both = _places(first.records) + _places(second.records)
    assert sorted(both) == sorted(_places(written))


def test_a_topic_as_of_a_commit_is_as_it_was(log: Log, client: TestClient) -> None:
    written = _fill(log)
    last = written[-1].commit or 0
    middle = last - 3
    expected = [record for record in written if (record.commit or 0) <= middle]
    answer = client.get("/api/topics/views/records", params={"asof": middle, "limit": 500}).json()
    places = [(each["partition"], each["offset"]) for each in answer["records"]]
    assert sorted(places) == sorted(_places(expected))
    page = client.get("/topics/views", params={"asof": middle}).text
    assert f'data-fact="records">{len(expected)}<' in page
    seconds = max(record.value["n"] for record in expected)
    assert f"2026-01-01 00:00:{seconds:02}Z" in page


def test_records_are_found_by_offset_and_time(log: Log, client: TestClient) -> None:
    written = _fill(log, partitions=1)
    by_offset = client.get("/api/topics/views/records", params={"at": "30", "limit": 2}).json()
    assert [each["value"]["n"] for each in by_offset["records"]] == [30, 31]
    moment = next(record for record in written if record.offset == 44).timestamp.isoformat()
    by_time = client.get("/api/topics/views/records", params={"at": moment, "limit": 1}).json()
    assert by_time["records"][0]["timestamp"] == moment.replace("+00:00", "Z")


def test_scripts_in_keys_values_headers_and_searches_are_text(log: Log, client: TestClient) -> None:
    log.create_topic("raw")
    with log.producer() as producer:
        producer.send("raw", SCRIPT, key=SCRIPT, headers=[(SCRIPT, SCRIPT.encode())])
    page = client.get("/topics/raw", params={"text": SCRIPT}).text
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 6


def test_binary_is_shown_as_hex_and_a_huge_value_is_cut(log: Log, client: TestClient) -> None:
    log.create_topic("raw")
    binary, huge = bytes(range(256)), "é" * 400_000
    with log.producer() as producer:
        producer.send("raw", binary)
        producer.send("raw", huge)
    page = client.get("/topics/raw")
    assert "00 01 02 03" in page.text
    assert "256 B, binary" in page.text
    assert "781.2 KiB" in page.text
    assert len(page.content) < 50_000
    for offset, content in ((0, binary), (1, huge.encode())):
        params = {"partition": 0, "offset": offset}
        whole = client.get("/topics/raw/value", params=params)
        assert whole.content == content
        assert whole.headers["content-disposition"].startswith("attachment")
        assert whole.headers["content-type"].startswith("text/plain")


def test_tombstones_are_named(log: Log, client: TestClient) -> None:
    log.create_topic("raw")
    with log.producer() as producer:
        producer.send("raw", None, key="k")
    assert ">tombstone<" in client.get("/topics/raw").text


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/topics/%3Cscript%3E", "dots, underscores and dashes"),
        ("/topics/views?at=yesterday", "is not a position"),
        ("/topics/views?at=999999", "Offset 999999 is not in partition"),
        ("/topics/views?partition=9", "has no partition 9"),
        ("/topics/views?partition=x", "partition cannot be"),
        ("/topics/views?asof=-1", "asof cannot be"),
        ("/topics/views?cursor=%3Cb%3E", "is not a cursor"),
        ("/topics/views/value?partition=0&offset=999", "has no record at offset 999"),
        ("/api/topics/views/records?limit=501", "limit cannot be 501"),
    ],
)
def test_bad_addresses_are_answered_in_words(
    log: Log, client: TestClient, path: str, message: str
) -> None:
    _fill(log, commits=1)
    answer = client.get(path)
    assert answer.status_code == 400
    assert message in answer.text
    assert "<script>" not in answer.text.split("<main", 1)[-1]


@pytest.mark.parametrize("path", ["/topics/nowhere", "/api/topics/nowhere"])
def test_a_topic_that_is_not_there_is_not_found(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, "nowhere" in answer.text) == (404, True)


def test_the_list_is_filtered_and_paged_on_the_server(log: Log, client: TestClient) -> None:
    for number in range(103):
        log.create_topic(f"topic-{number:03}", partitions=2)
    first = client.get("/api/topics").json()
    second = client.get("/api/topics", params={"page": 2}).json()
    assert (len(first["topics"]), len(second["topics"]), second["pages"]) == (100, 3, 2)
    found = client.get("/api/topics", params={"q": "IC-05"}).json()
    assert [each["name"] for each in found["topics"]] == [f"topic-05{n}" for n in range(10)]
    page = client.get("/topics").text
    assert "Page 1 of 2" in page
    assert "topic-102" not in page


def test_roles_are_known_by_their_columns(log: Log, client: TestClient) -> None:
    log.create_topic("app.dead", schema=DEAD_LETTER)
    log.create_topic("app.late", schema="user string, watermark timestamp, late_by double")
    with log.producer() as producer:
        producer.send("app.late", {"user": "u", "watermark": START, "late_by": 42.0})
    roles = {each["name"]: each["role"] for each in client.get("/api/topics").json()["topics"]}
    assert roles == {"app.dead": "dead letters", "app.late": "late rows"}
    assert "42 s" in client.get("/topics/app.late").text


def _letter(log: Log, record: Record, commit: int | None) -> None:
    log.create_topic("app.dead", schema=DEAD_LETTER)
    with log.producer() as producer:
        letter = {
            "step": "counts", "topic": record.topic, "partition": record.partition,
            "offset": record.offset, "commit_number": commit, "appended": START,
            "reason": "no event time", "row": "{}",
        }  # fmt: skip
        producer.send("app.dead", letter)


def test_a_dead_letter_is_sent_again_as_it_was(log: Log, client: TestClient) -> None:
    original = _fill(log)[20]
    _letter(log, original, original.commit)
    page = client.get("/topics/app.dead").text
    assert "no event time" in page
    assert "data-confirm" in page
    answer = client.post("/topics/app.dead/again", data={"partition": "0", "offset": "0"})
    assert answer.status_code == 200
    newest = browse(log, log.topic("views"), Wanted(limit=1)).records[0]
    assert newest.value == original.value
    assert newest.commit == log.head()


def test_a_letter_whose_record_is_another_one_now_is_not_sent(log: Log, client: TestClient) -> None:
    original = _fill(log)[20]
    _letter(log, original, (original.commit or 0) + 1)
    before = log.head()
    answer = client.post("/topics/app.dead/again", data={"partition": "0", "offset": "0"})
    assert (answer.status_code, "another one now" in answer.text) == (400, True)
    assert log.head() == before


def test_a_letter_about_an_event_of_a_domain_is_not_sent(log: Log, client: TestClient) -> None:
    """A second event of the same version would make its aggregate unreadable."""
    with bank().open(log) as store:
        store.handle(ACCOUNT, "a", Open("mia"))
        (batch,) = log.read("bank.events")
        (event,) = batch.records()
        _letter(log, event, event.commit)
        before = log.head()
        answer = client.post("/topics/app.dead/again", data={"partition": "0", "offset": "0"})
        assert (answer.status_code, "headrace rebuild" in answer.text) == (400, True)
        assert log.head() == before
        with bank().open(log) as fresh:
            assert fresh.load(ACCOUNT, "a").version == 1


def test_a_record_written_by_hand_is_in_the_log(log: Log, client: TestClient) -> None:
    _fill(log, commits=1)
    log.create_topic("raw")
    row = '{"user": "hand",\n "n": 7, "at": "2026-01-01T00:00:00Z"}'
    assert "Written" in client.post("/topics/views/produce", data={"row": row}).text
    found = browse(log, log.topic("views"), Wanted(key="hand")).records
    assert [record.value["n"] for record in found] == [7]
    form = {"key": "k", "value": SCRIPT, "headers": '{"trace": "1"}'}
    client.post("/topics/raw/produce", data=form)
    [raw] = browse(log, log.topic("raw"), Wanted()).records
    assert (raw.key, raw.value, raw.headers) == (b"k", SCRIPT.encode(), (("trace", b"1"),))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("", "The row is empty"),
        ("{", "is not JSON"),
        ('{"user": "u", "x": 1}', "x"),
        ('{"user": "u", "n": "many"}', "n"),
    ],
)
def test_a_bad_record_by_hand_is_refused_in_words(
    log: Log, client: TestClient, row: str, message: str
) -> None:
    _fill(log, commits=1)
    before = log.head()
    headers = {"hx-request": "true"}
    answer = client.post("/topics/views/produce", data={"row": row}, headers=headers)
    assert answer.status_code == 400
    assert message in answer.text
    assert "failure" in answer.text
    assert log.head() == before


def test_a_read_only_studio_has_no_forms_and_refuses_changes(log: Log) -> None:
    original = _fill(log)[20]
    _letter(log, original, original.commit)
    before = log.head()
    with client_of(log, read_only=True) as client:
        assert "Send again" not in client.get("/topics/app.dead").text
        assert "This studio is read-only" in client.get("/topics/views").text
        for path in ("/topics/app.dead/again", "/topics/views/produce", "/api/topics/views"):
            assert client.post(path, data={"partition": "0", "offset": "0"}).status_code == 403
    assert log.head() == before
