"""Routing against a plain meaning of AMQP's matching, and that meaning against RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queue.routing import Binding, bound, direct, headers, topic
from tests.servers.rabbitmq import RabbitMQ

WORDS = st.sampled_from(["a", "b", "", "order"])
KEYS = st.lists(WORDS, max_size=5).map(".".join)
PATTERNS = st.lists(st.one_of(WORDS, st.sampled_from("*#")), max_size=6).map(".".join)
NAMES = st.sampled_from(["kind", "tier", "x-tenant"])
VALUES = st.sampled_from([b"1", b"2"])
GIVEN = st.dictionaries(NAMES, VALUES)
WANTED = st.dictionaries(NAMES, st.one_of(VALUES, st.none()))
MATCH: st.SearchStrategy[Literal["all", "any"]] = st.sampled_from(["all", "any"])


def means(pattern: list[str], words: list[str]) -> bool:
    """What AMQP says: `*` is one word, `#` is any number of words, another word is itself."""
    if not pattern:
        return not words
    first, *rest = pattern
    if first == "#":
        return any(means(rest, words[n:]) for n in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and means(rest, words[1:])


def words_of(text: str) -> list[str]:
    return text.split(".") if text else []


@given(pattern=PATTERNS, key=KEYS)
def test_a_pattern_matches_what_amqp_says(pattern: str, key: str) -> None:
    assert topic("q", pattern).matches(key, {}) == means(words_of(pattern), words_of(key))


@given(st.lists(st.tuples(st.sampled_from("pqr"), PATTERNS)), KEYS)
def test_a_message_goes_once_to_each_queue_that_a_binding_matches(
    table: list[tuple[str, str]], key: str
) -> None:
    wanted = {queue for queue, pattern in table if means(words_of(pattern), words_of(key))}
    found = bound([topic(queue, pattern) for queue, pattern in table], key, [])
    assert sorted(found) == sorted(wanted)


@given(wanted=WANTED, given_headers=GIVEN)
def test_headers_match_all_or_any_and_those_of_amqp_do_not_count(
    wanted: dict[str, bytes | None], given_headers: dict[str, bytes]
) -> None:
    counted = {name: value for name, value in wanted.items() if name != "x-tenant"}
    same = [
        name in given_headers and value in (None, given_headers[name])
        for name, value in counted.items()
    ]
    assert headers("q", wanted).matches("", given_headers) == (False not in same)
    assert headers("q", wanted, "any").matches("", given_headers) == (True in same)


@pytest.mark.slow
@pytest.mark.service
def test_rabbitmq_routes_in_the_same_way(rabbitmq: RabbitMQ) -> None:
    """Every pattern against every key, and headers, on the real exchanges."""
    words = ["a", "b", "", "*", "#"]
    patterns = ["", *words[:2], "*", "#", *(f"{x}.{y}" for x in words for y in words)]
    patterns += [f"{x}.{y}.{z}" for x in "a*#" for y in "b*#" for z in "a*#"]
    keys = ["", "a", "b", *(f"{x}.{y}" for x in words[:3] for y in words[:3]), "a.b.a", "a.a.b.a"]
    tried: list[dict[str, str | bytes | None]] = [
        {}, {"a": "1"}, {"a": None}, {"a": "1", "b": "2"}, {"a": "1", "x-b": "2"}
    ]  # fmt: skip
    tables: list[tuple[str, list[Binding]]] = [
        ("topic", [topic(f"t{n}", pattern) for n, pattern in enumerate(patterns)]),
        ("direct", [direct(f"d{n}", key) for n, key in enumerate(keys)]),
        ("headers", [
            headers(f"h{n}-{match}", wanted, match)
            for match in ("all", "any")
            for n, wanted in enumerate(tried)
        ]),
    ]  # fmt: skip
    sent: list[Mapping[str, str]] = [{}, {"a": "1"}, {"a": "2"}, {"b": "2"}, {"a": "1", "b": "2"}]
    connection = rabbitmq.connect()
    channel = connection.channel()
    for kind, bindings in tables:
        channel.exchange_declare(kind, kind)
        for binding in bindings:
            channel.queue_declare(binding.queue, exclusive=True)
            channel.queue_bind(binding.queue, kind, binding.key, _arguments(binding))
    for kind, bindings in tables:
        for key in keys if kind != "headers" else [""]:
            for values in sent if kind == "headers" else [{}]:
                properties = pika.BasicProperties(headers=dict(values))
                channel.basic_publish(kind, key, b"", properties)
                got = {b.queue for b in bindings if channel.basic_get(b.queue, True)[0]}
                encoded = [(name, value.encode()) for name, value in values.items()]
                assert set(bound(bindings, key, encoded)) == got, (kind, key, values)
    connection.close()


def _arguments(binding: Binding) -> dict[str, Any] | None:
    if binding.kind != "headers":
        return None
    wanted = {name: value and value.decode() for name, value in binding.headers.items()}
    return {"x-match": binding.match, **wanted}
