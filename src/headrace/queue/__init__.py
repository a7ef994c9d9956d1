"""A work queue over the log: messages handed out one at a time, to any number of workers.

A queue is for work: each message is done once, by whichever worker is free, and then it is gone
from the queue. The log is for facts, which many read. Here both are the same records: a queue is
state over a topic, so its messages stay readable as history, a result commits together with the
message that caused it, and the queue can be sought back and played again.
"""

from headrace.log.queueing import Outcome, QueueSettings, QueueState
from headrace.queue.contract import (
    Message,
    NewMessage,
    QueueCapability,
    Send,
    Settlement,
    WorkQueue,
)
from headrace.queue.declare import all_queues, alter_queue, create_queue, delete_queue, open_queue
from headrace.queue.handling import Handler
from headrace.queue.log_queue import LogQueue
from headrace.queue.operations import PastState, purge, redrive, seek, state_at
from headrace.queue.routing import Binding, Router, direct, headers, topic
from headrace.queue.worker import Worker, WorkReport, work

__all__ = [
    "Binding", "Handler", "LogQueue", "Message", "NewMessage", "Outcome", "PastState",
    "QueueCapability", "QueueSettings", "QueueState", "Router", "Send", "Settlement", "WorkQueue",
    "WorkReport", "Worker", "all_queues", "alter_queue", "create_queue", "delete_queue", "direct",
    "headers", "open_queue", "purge", "redrive", "seek", "state_at", "topic", "work",
]  # fmt: skip
