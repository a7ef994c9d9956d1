"""RabbitMQ by hand, as its guides say: confirms, a durable quorum queue, manual acks, prefetch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pika

PREFETCH = 100
DURABLE = pika.BasicProperties(delivery_mode=2)


def create(url: str, queue: str) -> None:
    """Create a durable quorum queue."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare(
            queue, durable=True, arguments={"x-queue-type": "quorum"}
        )


def put(
    url: str, queue: str, body: bytes, count: int, window: int, begin: Callable[[], Any]
) -> None:
    """Publish messages, with up to `window` of them not confirmed yet; return when all are."""
    sent = confirmed = upto = 0
    beyond: set[int] = set()

    def opened(channel: Any) -> None:
        def publish() -> None:
            nonlocal sent
            while sent < min(count, confirmed + window):
                channel.basic_publish("", queue, body, DURABLE)
                sent += 1

        def heard(frame: Any) -> None:
            nonlocal confirmed, upto, beyond
            if frame.method.multiple:
                upto = frame.method.delivery_tag
                beyond = {tag for tag in beyond if tag > upto}
            else:
                beyond.add(frame.method.delivery_tag)
            confirmed = upto + len(beyond)
            if confirmed == count:
                connection.close()
            elif sent - confirmed <= window // 2:
                publish()

        def start(_: Any) -> None:
            begin()
            publish()

        channel.confirm_delivery(heard, callback=start)

    connection = _connection(url, opened)
    connection.ioloop.start()


def put_each(
    url: str, queue: str, body: Callable[[], bytes], count: int, begin: Callable[[], Any]
) -> None:
    """Publish messages one by one, each confirmed before the next."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        begin()
        for _ in range(count):
            channel.basic_publish("", queue, body(), DURABLE)


def work(
    url: str,
    queue: str,
    handled: Callable[[bytes], None],
    stop: threading.Event,
    begin: Callable[[], Any],
) -> None:
    """Acknowledge each message by itself, until `stop` is set."""

    def got(channel: Any, method: Any, _: Any, body: bytes) -> None:
        handled(body)
        channel.basic_ack(method.delivery_tag)

    def opened(channel: Any) -> None:
        channel.basic_qos(prefetch_count=PREFETCH, callback=lambda _: start(channel))

    def start(channel: Any) -> None:
        begin()
        channel.basic_consume(queue, got)

    def look() -> None:
        if stop.is_set():
            connection.close()
        else:
            connection.ioloop.call_later(0.02, look)

    connection = _connection(url, opened)
    connection.ioloop.call_later(0.02, look)
    connection.ioloop.start()


def _connection(url: str, opened: Callable[[Any], None]) -> pika.SelectConnection:
    connection = pika.SelectConnection(
        pika.URLParameters(url),
        on_open_callback=lambda made: made.channel(on_open_callback=opened),
        on_close_callback=lambda made, _: made.ioloop.stop(),
    )
    return connection
