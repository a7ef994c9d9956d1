"""The pages of views: rows, queries, the past, and why a row is what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headrace.log import open_log
from headrace.store import open_views
from headrace.studio.live import views, why
from headrace.studio.live.rows import described, newest, opened
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings
from tests.studio.viewed import hit, pageviews, write

EVIL = '<script>alert("x")</script>'
APP, TOPIC = pageviews()
COMMITS = (
    [hit("/a", 1), hit("/b", 2), hit("/a", 3, "bob")],
    [hit("/a", 65), hit("/a", 5, "cid")],
    [hit(EVIL, 200)],
    [hit("/a", 4)],  # late
)
VIEW = "/views/pageviews/hits_per_minute"
ROW = f"{VIEW}/row?k=/a&k=2026-03-01 12:00:00"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> StudioSettings:
    url = write(tmp_path_factory.mktemp("log"), APP, TOPIC, *COMMITS)
    return StudioSettings(log=url, apps=("app.py:app",), token="t", declared={APP.name: APP})


@pytest.fixture(scope="module")
def client(settings: StudioSettings) -> Iterator[TestClient]:
    with _client(settings) as client:
        yield client


def _client(settings: StudioSettings) -> TestClient:
    bearer = {"authorization": "Bearer t"}
    return TestClient(studio(settings), base_url=settings.origin, headers=bearer)


def rows_in(text: str) -> list[list[str]]:
    """The cells of the first table of a page."""
    table = text.partition("<tbody>")[2].partition("</tbody>")[0]
    return [
        [unescape(re.sub("<[^>]+>", "", cell)) for cell in re.findall("<td[^>]*>(.*?)</td>", row)]
        for row in table.split("</tr>")[:-1]
    ]


def facts_in(text: str) -> dict[str, str]:
    return dict(re.findall(r'data-fact="([^"]*)">([^<]*)<', text))


def test_the_list_has_every_view(client: TestClient) -> None:
    ((name, app, rows, *_),) = rows_in(client.get("/views").text)
    assert (name, app, rows) == ("hits_per_minute", "pageviews", "4")


def test_a_view_shows_its_newest_windows_first_with_their_states(client: TestClient) -> None:
    shown = rows_in(client.get(VIEW).text)
    assert [(row[0], row[1][11:], row[3], row[6]) for row in shown] == [
        (EVIL, "12:03:00", "1", "open"),
        ("/a", "12:01:00", "1", "final"),
        ("/a", "12:00:00", "3", "final"),
        ("/b", "12:00:00", "1", "final"),
    ]
    assert facts_in(client.get(VIEW).text)["watermark"] == "2026-03-01 12:03:10"


def test_a_script_in_a_row_is_text(client: TestClient) -> None:
    for path in (VIEW, "/dashboard", f"/views/query?sql=SELECT '{EVIL}' AS x", "/views/x/" + EVIL):
        assert EVIL not in client.get(path).text, path


def test_the_newest_rows_are_those_of_the_reader_of_views(settings: StudioSettings) -> None:
    with open_views(settings.log) as read:
        for limit in (1, 2, 3, 100):
            with opened(read, "pageviews") as db:
                found = newest(db, described(db, "pageviews", "hits_per_minute"), limit)
            assert found == read.newest("hits_per_minute", limit).rows


def test_the_newest_rows_of_a_large_view_are_found_by_an_index(settings: StudioSettings) -> None:
    with open_views(settings.log) as read, opened(read, "pageviews") as db:
        plans: list[str] = []

        def trace(cursor: object, sql: str, values: object) -> bool:
            plans.append(sql)
            return True

        db.exec_trace = trace
        newest(db, described(db, "pageviews", "hits_per_minute"), 2)
        db.exec_trace = None
        plan = str(list(db.execute(f"EXPLAIN QUERY PLAN {plans[-1]}")))
        assert "USING INDEX _headrace_ends_hits_per_minute" in plan


def test_a_query_answers_with_rows(client: TestClient) -> None:
    sql = "SELECT url, sum(hits) FROM hits_per_minute GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    assert rows_in(client.get("/views/query", params={"sql": sql}).text) == [["/a", "4"]]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "The query is empty"),
        ("SELECT * FROM missing", "no such table: missing"),
        ("DELETE FROM hits_per_minute", "cannot modify"),
        ("DROP VIEW hits_per_minute", "can only read"),
        ("ATTACH '/etc/passwd' AS x", "can only read"),
        ("SELECT 1; SELECT 2", "There are several queries"),
    ],
)
def test_a_bad_query_is_explained_and_changes_nothing(
    client: TestClient, sql: str, said: str
) -> None:
    answer = client.get("/views/query", params={"sql": sql})
    assert (answer.status_code, 'role="alert"' in answer.text) == (200, True)
    assert said in unescape(answer.text)
    assert len(rows_in(client.get(VIEW).text)) == 4


def test_a_query_that_never_ends_is_stopped(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "QUERY_SECONDS", 0.2)
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t) SELECT count(*) FROM t"
    answer = client.get("/views/query", params={"sql": endless})
    assert "The query took longer than 0.2 s" in unescape(answer.text)


def test_a_query_shows_at_most_200_rows(client: TestClient) -> None:
    many = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n FROM t"
    answer = client.get("/views/query", params={"sql": many})
    assert len(rows_in(answer.text)) == 200
    assert "There are more rows" in answer.text


@pytest.mark.parametrize(
    "path",
    ["/views/nothing/x", "/views/pageviews/nothing", "/views/..%2F..%2Fetc/x", f"{VIEW}/row?k=/z"],
)
def test_what_is_not_there_is_not_found(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert 'role="alert"' in answer.text


# Why this row


def test_a_row_names_the_events_that_made_it(client: TestClient, settings: StudioSettings) -> None:
    text = client.get(ROW).text
    facts = facts_in(text)
    assert (facts["hits"], facts["events"], facts["late"], facts["recount"]) == (
        "3", "3", "1", "equal"
    )  # fmt: skip
    shown = {(int(c), int(p), int(o)) for c, p, o, *_ in rows_in(text)}
    with open_log(settings.log) as log:
        records = [record for batch in log.read("pageviews") for record in batch.records()]
    wanted = [record for record in records if record.value["user"] in ("ann", "bob", "cid")]
    assert shown == {
        (record.commit, record.partition, record.offset)
        for record in wanted
        if record.value["url"] == "/a" and record.value["at"].minute == 0 and record.commit != 4
    }


def test_the_history_of_a_row_is_that_of_its_changelog(client: TestClient) -> None:
    history = client.get(ROW).text.partition("Its history")[2]
    assert [(row[2], row[4]) for row in rows_in(history)] == [("updated", "3"), ("created", "2")]


def test_without_a_declaration_a_row_has_its_history_and_says_what_is_missing(
    settings: StudioSettings,
) -> None:
    with _client(replace(settings, apps=(), declared={})) as client:
        text = client.get(ROW).text
    assert "Start the studio with its application" in text
    assert "updated" in text


# The past


def test_a_view_as_of_a_commit_is_what_had_been_published_by_then(
    client: TestClient, settings: StudioSettings
) -> None:
    with open_log(settings.log) as log:
        changes = log.commits("pageviews.hits_per_minute.changes", 0, 10)
    first, second, *_ = [commit.number for commit in changes]

    def hits(commit: int) -> list[tuple[str, str]]:
        text = client.get(f"{VIEW}?commit={commit}").text
        assert f"As of commit {commit}." in text
        return [(row[0], row[3]) for row in rows_in(text)]

    assert hits(first - 1) == []
    assert hits(first) == [("/a", "2"), ("/b", "1")]
    assert hits(second) == [("/a", "1"), ("/a", "3"), ("/b", "1")]


def test_a_view_without_a_changelog_says_so(tmp_path: Path) -> None:
    url = write(tmp_path, APP, TOPIC, *COMMITS[:1])
    with open_log(url) as log:
        log.delete_topic("pageviews.hits_per_minute.changes")
    with _client(StudioSettings(log=url, token="t")) as client:
        assert "This view has no changelog" in client.get(VIEW).text
        assert "This view has no changelog" in client.get(f"{VIEW}?commit=1").text


def test_the_past_of_a_long_changelog_says_that_it_was_cut(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why, "CHANGES", 1)
    assert "the last 1 changes were read" in client.get(f"{VIEW}?commit=99").text
