"""Write one record by hand, send a dead letter's record again, and the line for programs."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import parse_qsl

import anyio.to_thread
import htpy as h
import pyarrow as pa
from fastapi import APIRouter, Request
from htpy import Element, Node
from starlette.responses import HTMLResponse

from headrace.backfill.json_lines import line_reader
from headrace.clock import SystemClock, to_text
from headrace.errors import InvalidRecord
from headrace.eventsourcing.topics import has_events
from headrace.log import Log, Receipt, Topic
from headrace.studio.live.browsing import one_record
from headrace.studio.live.handles import Opened
from headrace.studio.live.ingest import body_of
from headrace.studio.live.links import address
from headrace.studio.live.roles import DEAD, role_of
from headrace.studio.pages import fragment, section
from headrace.studio.settings import StudioSettings
from headrace.wording import count

router = APIRouter()


@router.post("/topics/{name}/produce", include_in_schema=False)
async def produce(request: Request, opened: Opened, name: str) -> HTMLResponse:
    """Write the record of the form."""
    given = await _form(request)
    receipt = await anyio.to_thread.run_sync(_produce, opened.log, name, given)
    return fragment(_said("Written", receipt))


@router.post("/topics/{name}/again", include_in_schema=False)
async def again(request: Request, opened: Opened, name: str) -> HTMLResponse:
    """Send the record of a dead letter to its topic once more."""
    given = await _form(request)
    place = given.get("partition", ""), given.get("offset", "")
    if not all(each.isascii() and each.isdigit() for each in place):
        raise InvalidRecord("The letter has no partition and offset", hint="Reload the page")
    partition, offset = map(int, place)
    receipt = await anyio.to_thread.run_sync(send_again, opened.log, name, partition, offset)
    return fragment(_said("Sent again", receipt))


async def _form(request: Request) -> dict[str, str]:
    body = await body_of(request)
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


def _produce(log: Log, name: str, given: dict[str, str]) -> Receipt:
    topic = log.topic(name).topic
    if topic.schema is not None:
        line = given.get("row", "").encode()
    else:
        line = json.dumps(_raw(given)).encode()
    if not line.strip():
        raise InvalidRecord("The row is empty", hint="Write a JSON object")
    value, key, headers, partition = line_reader(topic)(line)
    with log.producer(acks="synced") as producer:
        return producer.send(name, value, key, headers, partition).wait()


def _raw(given: dict[str, str]) -> dict[str, Any]:
    headers: Any = None
    if given.get("headers", "").strip():
        try:
            headers = json.loads(given["headers"])
        except ValueError as error:
            raise InvalidRecord(
                f"The headers are not JSON: {error}", hint='Write {"trace": "7f3a"}'
            ) from None
    return {"key": given.get("key") or None, "value": given.get("value", ""), "headers": headers}


def send_again(log: Log, name: str, partition: int, offset: int) -> Receipt:
    """Append the record that a dead letter is about to its topic, unchanged.

    The letter has the row as text, which may have lost its types, so the record itself is read.
    """
    letter = next(one_record(log, name, partition, offset).records(as_text=True)).value
    if role_of(log.topic(name).topic) != DEAD or letter is None:
        raise InvalidRecord(f"The record at offset {offset} of {name!r} is no dead letter")
    source, commit = letter["topic"], letter["commit_number"]
    if source is None or letter["partition"] is None or letter["offset"] is None:
        raise InvalidRecord("The dead letter does not say where its record is")
    if has_events(log.topic(source).topic):
        raise InvalidRecord(
            f"The record is an event of a domain, in {source!r} for good: another one of the same "
            "version would make its aggregate unreadable",
            hint="Deploy the upcaster that reads it, and rebuild the views: headrace rebuild VIEW",
        )
    original = one_record(log, source, letter["partition"], letter["offset"])
    if commit is None or original.commit != commit:
        raise InvalidRecord(
            f"The record at offset {letter['offset']} of {source!r} is another one now",
            hint="The topic was created again. Write the row by hand",
        )
    with log.producer(acks="synced") as producer:
        return producer.append(source, original.data, tombstones=original.tombstones)


def _said(verb: str, receipt: Receipt) -> Element:
    ack = receipt.acks[0]
    path = address(f"/topics/{ack.topic}", {"at": ack.first, "partition": ack.partition})
    commit = "" if receipt.commit is None else f", commit {count(receipt.commit)}"
    return h.div(".success", role="status")[
        h.p[
            f"{verb}: ",
            h.a(href=f"{path}#messages")[
                f"{ack.topic}, partition {ack.partition}, offset {count(ack.first)}"
            ],
            f"{commit}.",
        ]
    ]


# The section of a topic's page


def way_in(topic: Topic, settings: StudioSettings) -> Node:
    """The form for one record, and how a program writes."""
    if role_of(topic):
        return None
    if settings.read_only:
        return section("Write", h.p(".empty")["This studio is read-only."], id="write")
    example = _example(topic)
    return section(
        "Write",
        h.div(".columns")[
            h.form(hx_post=f"/topics/{topic.name}/produce", hx_target="#produced")[
                h.h3["One record by hand"],
                _fields(topic, example),
                h.p[h.button(".primary", type="submit")["Write"]],
                h.div("#produced", aria_live="polite"),
            ],
            h.div[
                h.h3["Over HTTP"],
                h.p[
                    "JSON lines, one row on each. Rows are on disk before the answer comes; bad "
                    "rows are named in it one by one. Sent again with the same ",
                    h.code["Idempotency-Key"],
                    ", a request has one effect.",
                ],
                h.pre(tabindex="0", aria_label="curl")[h.code[_curl(topic, settings, example)]],
                h.p(".hint")[
                    h.code["TOKEN"],
                    " is the token of the address that the studio printed. ",
                    h.a(href="/api")["HTTP API"],
                ],
            ],
        ],
        id="write",
    )


def _fields(topic: Topic, example: dict[str, Any]) -> Node:
    if topic.schema is not None:
        text = json.dumps(example, indent=1, ensure_ascii=False)
        return h.label(".field")[
            h.span["Row, as JSON"], h.textarea(name="row", rows="6", spellcheck="false")[text]
        ]
    return [
        h.label(".field")[
            h.span["Key"], h.input(type="text", name="key", placeholder="empty for none")
        ],
        h.label(".field")[h.span["Value"], h.textarea(name="value", rows="4", spellcheck="false")],
        h.label(".field")[
            h.span["Headers, as JSON"],
            h.input(type="text", name="headers", placeholder='{"trace": "7f3a"}'),
        ],
    ]


def _curl(topic: Topic, settings: StudioSettings, example: dict[str, Any]) -> str:
    row = json.dumps(example, ensure_ascii=False)
    return " \\\n  ".join(
        (
            f"curl -sS {settings.origin}/api/topics/{topic.name}",
            '-H "Authorization: Bearer $TOKEN"',
            "-H 'Idempotency-Key: event-1'",
            f"--data-binary {shlex.quote(row)}",
        )
    )


def _example(topic: Topic) -> dict[str, Any]:
    """A row that fits a topic."""
    if topic.schema is None:
        return {"key": "k", "value": "hello"}
    return {field.name: _sample(field.type) for field in topic.schema}


def _sample(kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_timestamp(kind):
        now = to_text(SystemClock().now()).replace(" ", "T")
        return now if kind.tz else now.removesuffix("Z")
    if types.is_date(kind):
        return to_text(SystemClock().now())[:10]
    if types.is_integer(kind):
        return 1
    if types.is_floating(kind):
        return 1.5
    if types.is_decimal(kind):
        return "1"
    if types.is_boolean(kind):
        return True
    if types.is_string(kind):
        return "text"
    if types.is_list(kind):
        return []
    if types.is_struct(kind):
        return {field.name: _sample(field.type) for field in kind}
    return {} if types.is_map(kind) else ""
