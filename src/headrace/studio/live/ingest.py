"""A way in over HTTP: JSON lines into a topic, bad rows answered one by one.

A request is one commit, synced before the answer: nothing is lost after a 2xx. With an
`Idempotency-Key`, the same commit stores the answer under that key in the topic
`_headrace.requests`. So a repeated request writes nothing and gets the first one's answer, from
another studio too: they share a producer id, and whoever opens it last fences out the others.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Header, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from headrace.backfill.json_lines import line_reader
from headrace.clock import MILLISECOND, SystemClock
from headrace.errors import (
    InvalidRecord,
    InvalidSetting,
    OffsetOutOfRange,
    ProducerFenced,
    UnknownPartition,
    UserError,
)
from headrace.log import EARLIEST, Log, Offset, Producer, Topic, TopicSettings, Transaction
from headrace.log.settings import MAX_RECORD_BYTES
from headrace.studio.live.browsing import one_record
from headrace.studio.live.handles import Opened

router = APIRouter()

MOST_BYTES = 16 << 20
MOST_ROWS = 100_000
REQUESTS = "_headrace.requests"
"""The topic of answers, by idempotency key."""

_PRODUCER = "headrace.http"
_REMEMBERED = timedelta(days=7)
_ATTEMPTS = 50
_PAUSE = 20 * MILLISECOND
"""The longest pause before the next attempt, which grows: studios at once must not keep time."""
_REFUSED = (InvalidRecord, UnknownPartition)

_DECLARED = Topic(
    REQUESTS,
    1,
    settings=TopicSettings(
        retention=_REMEMBERED,
        segment_age=timedelta(days=1),
        max_record_bytes=MAX_RECORD_BYTES,
    ),
)


@router.post(
    "/api/topics/{name}",
    tags=["topics"],
    responses={
        200: {"description": "Written, except the rejected lines"},
        400: {"description": "Nothing was written: no topic of that name, or no good line"},
        409: {"description": "The idempotency key was used with another body"},
        413: {"description": "More than 16 MiB or 100,000 lines"},
    },
)
async def ingest(
    request: Request,
    opened: Opened,
    name: str,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Write JSON lines to a topic: a row on each line, or {"key": …, "value": …} if it is raw.

    The answer has the number of rows `written` and each `rejected` line with its error. Rows are
    on disk before it is sent. An `Idempotency-Key` of up to 200 characters makes it safe to send
    the request again within seven days: it has one effect and the same answer.
    """
    body = await body_of(request)
    way = _way_in(request)
    answer = await anyio.to_thread.run_sync(way.write, opened.log, name, body, idempotency_key)
    headers = {"idempotent-replayed": "true"} if answer.replayed else {}
    return JSONResponse(answer.content, status_code=answer.status, headers=headers)


async def body_of(request: Request, most: int = MOST_BYTES) -> bytes:
    """The body of a request. A larger one is refused before it is read."""
    parts, length = [], 0
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    async for part in request.stream():
        length += len(part)
        if length > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"The body is larger than {most:,} bytes: send several requests")


@dataclass(frozen=True)
class Answer:
    """The answer to a request, and if it is that of an earlier one."""

    status: int
    content: Mapping[str, Any]
    replayed: bool = False


class WayIn:
    """Writes requests to a log. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._producer: Producer | None = None
        self._known = _Known()

    def write(self, log: Log, name: str, body: bytes, key: str | None) -> Answer:
        """Write the lines of a body, once for each key."""
        topic = log.topic(name).topic
        if key is None:
            with log.producer(acks="synced") as producer:
                return _written(producer.transaction(), topic, body)
        if not 1 <= len(key) <= 200 or not key.isascii() or not key.isprintable():
            raise InvalidSetting(
                "The Idempotency-Key is not 1 to 200 printable ASCII characters",
                hint="Use the id of the event, or a UUID",
            )
        scope = log.topic_ids([name])[name]  # a topic that was created again is another one
        request = _Request(f"{scope}:{key}", hashlib.sha256(body).hexdigest())
        with self._lock:
            for attempt in range(1, _ATTEMPTS):
                try:
                    return self._once(log, topic, body, request)
                except ProducerFenced:
                    self._forget()  # another studio has written: look at its requests first
                    self._clock.sleep(random.randint(0, attempt * _PAUSE))
            return self._once(log, topic, body, request)

    def _once(self, log: Log, topic: Topic, body: bytes, request: _Request) -> Answer:
        if self._producer is None:
            log.ensure_topic(_DECLARED)
            self._producer = log.producer(id=_PRODUCER, acks="synced")
        try:
            # Requests are looked up after the producer is open: no other can commit from then on.
            if (stored := self._known.find(log, request.key)) is not None:
                return _replayed(stored, request)
            return _written(self._producer.transaction(), topic, body, request)
        except UserError:
            raise
        except BaseException:
            self._forget()  # it is unknown if the commit was made
            raise

    def _forget(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


@dataclass(frozen=True)
class _Request:
    key: str
    digest: str


@dataclass
class _Known:
    """The offset of each request's answer, as far as the topic of requests was read."""

    offsets: dict[str, int] = field(default_factory=dict)
    end: int = 0

    def find(self, log: Log, key: str) -> Mapping[str, Any] | None:
        state = log.topic(REQUESTS).partitions[0]
        if state.end < self.end:
            self.offsets, self.end = {}, 0  # it was deleted and created again
        start = Offset(self.end) if self.end >= state.first and self.end else EARLIEST
        for batch in log.read(REQUESTS, start=start, columns=["key"]):
            keys = batch.data.column(0).to_pylist()
            for offset, found in zip(batch.offsets.tolist(), keys, strict=True):
                self.offsets.setdefault(found.decode(), offset)
        self.end = state.end
        offset = self.offsets.get(key)
        if offset is None:
            return None
        try:
            record = next(one_record(log, REQUESTS, 0, offset).records())
        except OffsetOutOfRange:
            self.offsets = {k: at for k, at in self.offsets.items() if at >= state.first}
            return None
        stored: Mapping[str, Any] = json.loads(zlib.decompress(record.value))
        return stored


def _replayed(stored: Mapping[str, Any], request: _Request) -> Answer:
    if stored["sha256"] != request.digest:
        error = "This Idempotency-Key was used with another body"
        hint = "Nothing was written. Use another key for other rows"
        return Answer(409, {"error": error, "hint": hint})
    return Answer(200, stored["answer"], replayed=True)


def _written(
    transaction: Transaction, topic: Topic, body: bytes, request: _Request | None = None
) -> Answer:
    """Commit the good lines, and with a request its answer."""
    read = line_reader(topic)
    written, rejected = 0, []
    lines = body.split(b"\n")
    if len(lines) > MOST_ROWS + 1:
        raise HTTPException(413, f"There are more than {MOST_ROWS:,} lines: send several requests")
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        try:
            value, key, headers, partition = read(line)
            transaction.send(topic.name, value, key, headers, partition)
        except _REFUSED as error:
            rejected.append({"line": number, "error": error.message, "hint": error.hint})
        else:
            written += 1
    content: dict[str, Any] = {"written": written, "rejected": rejected}
    if not written:
        transaction.abort()
        if not rejected:
            content |= {"error": "The body has no rows", "hint": "Send one JSON object per line"}
        return Answer(400, content)
    if request is not None:
        stored = {"sha256": request.digest, "answer": content}
        packed = zlib.compress(json.dumps(stored, ensure_ascii=False).encode())
        transaction.send(REQUESTS, packed, request.key)
    transaction.commit()
    return Answer(200, content)


def _way_in(request: Request) -> WayIn:
    state = request.app.state
    if not hasattr(state, "way_in"):
        state.way_in = WayIn()
    found = state.way_in
    assert isinstance(found, WayIn)
    return found
