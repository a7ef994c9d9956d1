"""Run a user's handler on messages, in threads or as coroutines."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence

from headrace.errors import InvalidSetting, MisusedHandle
from headrace.queue.contract import Message, Send, Settlement

Answer = Settlement | Send | Iterable[Send] | None
Handler = Callable[[Message], Answer] | Callable[[Message], Awaitable[Answer]]
"""A function of a message. It returns None or what to send when the message is accepted, or a
settlement, such as `message.rejected("no such address")`. An exception is a failure."""

Fail = Callable[[Message, str], Settlement]


class Handling(ABC):
    """Messages that are being handled. What is finished is in `done`."""

    def __init__(self, fail: Fail) -> None:
        self.done: queue.SimpleQueue[Settlement] = queue.SimpleQueue()
        self._fail = fail

    @abstractmethod
    def start(self, messages: Sequence[Message]) -> None:
        """Handle messages, in order, as soon as there is room."""

    @abstractmethod
    def withdraw(self) -> list[Message]:
        """Take back the messages whose handling has not begun."""

    @abstractmethod
    def close(self) -> None:
        """Stop, after everything that was begun."""

    def _answered(self, message: Message, answer: Answer) -> Settlement:
        if isinstance(answer, Settlement):
            if answer.message is not message:
                raise MisusedHandle(
                    f"The handler of message {message.id} settled message {answer.message.id}",
                    hint="Return a settlement of the message that the handler was called with",
                )
            return answer
        if isinstance(answer, Send):
            return message.accepted(answer)
        sends = () if answer is None else tuple(answer)
        if not all(isinstance(send, Send) for send in sends):
            raise InvalidSetting(
                f"The handler returned {answer!r}",
                hint="Return None, Send(topic, value), several of them, or a settlement such as "
                "message.rejected(reason)",
            )
        return message.accepted(*sends)

    def _failed(self, message: Message, error: BaseException) -> Settlement:
        return self._fail(message, f"{type(error).__name__}: {error}")


class ThreadHandling(Handling):
    """A handler in threads."""

    def __init__(self, handler: Callable[[Message], Answer], fail: Fail, concurrency: int) -> None:
        super().__init__(fail)
        self._handler = handler
        self._todo: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"headrace-worker-{n}", daemon=True)
            for n in range(concurrency)
        ]
        for thread in self._threads:
            thread.start()

    def start(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._todo.put(message)

    def withdraw(self) -> list[Message]:
        found: list[Message] = []
        while True:
            try:
                message = self._todo.get_nowait()
            except queue.Empty:
                return found
            if message is not None:
                found.append(message)

    def close(self) -> None:
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (message := self._todo.get()) is not None:
            try:
                settlement = self._answered(message, self._handler(message))
            except BaseException as error:  # also SystemExit: a worker outlives its handlers
                settlement = self._failed(message, error)
            self.done.put(settlement)


class AsyncHandling(Handling):
    """A coroutine function, so many at a time, in an event loop of its own thread."""

    def __init__(
        self, handler: Callable[[Message], Awaitable[Answer]], fail: Fail, concurrency: int
    ) -> None:
        super().__init__(fail)
        self._handler = handler
        self._lock = threading.Lock()
        self._waiting: list[Message] = []
        self._loop = asyncio.new_event_loop()
        self._room = concurrency
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headrace-worker-loop", daemon=True
        )
        self._thread.start()

    def start(self, messages: Sequence[Message]) -> None:
        with self._lock:
            self._waiting += messages
        self._loop.call_soon_threadsafe(self._begin)

    def withdraw(self) -> list[Message]:
        with self._lock:
            found, self._waiting = self._waiting, []
        return found

    def close(self) -> None:
        async def finish() -> None:
            await asyncio.gather(*self._tasks)

        asyncio.run_coroutine_threadsafe(finish(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _begin(self) -> None:
        while self._room:
            with self._lock:
                if not self._waiting:
                    return
                message = self._waiting.pop(0)
            self._room -= 1
            task = self._loop.create_task(self._work(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, message: Message) -> None:
        try:
            settlement = self._answered(message, await self._handler(message))
        except BaseException as error:
            settlement = self._failed(message, error)
        self.done.put(settlement)
        self._room += 1
        self._begin()


def handling(handler: Handler, fail: Fail, concurrency: int) -> Handling:
    """Run a handler in the way that its kind needs."""
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        return AsyncHandling(handler, fail, concurrency)  # type: ignore[arg-type]
    return ThreadHandling(handler, fail, concurrency)  # type: ignore[arg-type]
