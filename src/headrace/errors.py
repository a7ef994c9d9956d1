"""Every error headrace raises on purpose, in one tree.

    HeadraceError
    ├── UserError                   the caller's mistake: the command line exits with 2
    │   ├── InvalidName             a topic, group or producer name that is not allowed
    │   ├── InvalidSetting          a setting that does not exist or is out of its range
    │   ├── InvalidSchema           a schema that cannot be read, or a key or time column it lacks
    │   ├── InvalidPosition         a start or stop that cannot be understood
    │   ├── InvalidRecord           a record that does not fit its topic
    │   │   ├── UnknownColumn       a column the topic does not have
    │   │   ├── WrongType           a value its column cannot hold
    │   │   ├── NullKey             no key where the topic needs one
    │   │   └── RecordTooLarge      a record over the topic's size limit
    │   ├── UnknownTopic            no topic of that name
    │   ├── UnknownPartition        the topic has no such partition
    │   ├── UnknownGroup            no consumer group of that name
    │   ├── TopicExists             a topic of that name is there already
    │   ├── GroupActive             the group has members, so its offsets cannot be reset
    │   ├── OffsetOutOfRange        an offset outside what the partition holds; names the range
    │   ├── TransactionTooLarge     more in one transaction than one commit may hold
    │   ├── InvalidPipeline         a declaration that cannot be run; names the user's line
    │   │   └── InvalidWindow       a window or a lateness that makes no sense
    │   ├── AlreadyRunning          the same application is running already
    │   ├── ChangedPipeline         stored results are of another declaration of the pipeline
    │   ├── ForeignCheckpoint       the checkpoint belongs to something else
    │   ├── NoJava                  Spark and Kafka need a Java, and there is none that works
    │   ├── MissingExtra            what talks to a server is not installed; names the extra
    │   ├── PortTaken               a port that a broker was to listen on is in use
    │   ├── UnknownView             no view of that name
    │   ├── InvalidQuery            a query that cannot be run, or takes too long
    │   ├── MisusedHandle           a producer, consumer or transaction used after its end
    │   └── Unsupported             this kind of log lacks the named capability
    ├── PipelineError               a pipeline had to stop: the command line exits with 1
    │   ├── LawBroken               a batch has rows that cannot be accounted for
    │   ├── CrowdedKey              one key has more rows than a step may hold
    │   └── PipelineFailed          Spark, or the user's own code in it, failed
    ├── ServerError                 a server that headrace starts could not be started or stopped
    │   ├── JarRefused              a jar does not match its checksum
    │   ├── JarUnavailable (Retryable)  a jar could not be fetched
    │   └── BrokerFailed            a Kafka broker did not start, or ended
    ├── ViewError                   the database of an application's views could not do it
    │   └── CorruptView             the database of an application's views is damaged
    └── LogError                    the log could not do it: the command line exits with 1
        ├── LogBusy (Retryable)     another process kept the write lock for too long
        ├── DiskFull (Retryable)    no space left; nothing of the commit is visible
        ├── ReadOnlyLog             the folder cannot be written
        ├── NotALog                 the folder is not a headrace log
        ├── NewerFormat             the folder was written by a newer headrace
        ├── OlderFormat             the folder has a format that is no longer read
        ├── CorruptSegment          stored bytes do not match their checksum
        ├── CorruptCatalog          the metadata database is damaged
        ├── StorageUnavailable (Retryable)  a tiered segment's filesystem does not answer
        ├── LogUnavailable (Retryable)  the broker does not answer
        ├── AccessDenied            the broker does not let this user in, or not do this
        ├── UnreadableRecord        a record that is not what its topic's columns say
        │   └── UnreadableValue     a value that Arrow can hold and Python cannot
        ├── OutOfOrderSequence      a producer skipped a sequence number
        └── Fenced                  somebody newer has taken over
            ├── ProducerFenced      a newer producer of the same id has started
            └── MemberFenced        the group has gone on without this member

`Retryable` marks what may succeed when tried again as it is; everything else will not. Errors
survive pickling with all they know, because Spark's executors pickle them.
"""

from __future__ import annotations

from typing import Any


class HeadraceError(Exception):
    """What happened, and in `hint` the next thing to do. `details` holds the facts by name."""

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.details)


def _rebuild(
    kind: type[HeadraceError], message: str, hint: str, details: dict[str, Any]
) -> HeadraceError:
    return kind(message, hint=hint, **details)


class Retryable(HeadraceError):
    """The same call may succeed later, unchanged."""


class UserError(HeadraceError):
    """The caller asked for something that cannot be."""


class InvalidName(UserError):
    """A name is made of letters, digits, dot, underscore and dash, 1 to 249 of them."""


class InvalidSetting(UserError):
    """A setting that does not exist or whose value is out of range."""


class InvalidSchema(UserError):
    """A schema that cannot be read, or that lacks the key or event-time column it names."""


class InvalidPosition(UserError):
    """A position that is no offset, time, commit or end of the log."""


class InvalidRecord(UserError):
    """A record that does not fit its topic."""


class UnknownColumn(InvalidRecord):
    """A record with a column its topic does not have, or without one it needs."""


class WrongType(InvalidRecord):
    """A value that its column's type cannot hold."""


class NullKey(InvalidRecord):
    """A record without a key, in a topic that needs one."""


class RecordTooLarge(InvalidRecord):
    """A record over the topic's `max_record_bytes`."""


class UnknownTopic(UserError):
    """No topic of that name."""


class UnknownPartition(UserError):
    """A partition number the topic does not have."""


class UnknownGroup(UserError):
    """No consumer group of that name."""


class TopicExists(UserError):
    """The name is taken."""


class GroupActive(UserError):
    """The group has live members, and what was asked needs it to be idle."""


class OffsetOutOfRange(UserError):
    """An offset before the first or after the last; `details` has `first` and `end`."""


class TransactionTooLarge(UserError):
    """A transaction is one commit, and a commit has a bounded size."""


class InvalidPipeline(UserError):
    """A pipeline that cannot be run as it was declared."""


class InvalidWindow(InvalidPipeline):
    """A window or a lateness that makes no sense."""


class AlreadyRunning(UserError):
    """The same application is running already, in this process or another."""


class ChangedPipeline(UserError):
    """What is stored was computed by another declaration than the present one."""


class ForeignCheckpoint(UserError):
    """A checkpoint of another application, step or log."""


class NoJava(UserError):
    """Spark and Kafka run on Java 17 or newer."""


class MissingExtra(UserError):
    """A package that only some need is not installed; the hint has the command that does it."""


class PortTaken(UserError):
    """Another process listens on the port; `details["port"]` has it."""


class UnknownView(UserError):
    """No view of that name."""


class InvalidQuery(UserError):
    """A query that SQLite does not understand, that would write, or that takes too long."""


class MisusedHandle(UserError):
    """A producer, consumer or transaction used after its end, in a forked child, or two at once."""


class Unsupported(UserError):
    """The log lacks a capability; `details["capability"]` names it."""


class PipelineError(HeadraceError):
    """A pipeline had to stop. What it stored before is as it was."""


class LawBroken(PipelineError):
    """Rows in are not rows counted, filtered, late and dead; `details["law"]` has the terms."""


class CrowdedKey(PipelineError):
    """One key has more rows than its step may hold; `details` has the key and the count."""


class PipelineFailed(PipelineError):
    """Spark failed, or an expression of the user's did on some row."""


class ServerError(HeadraceError):
    """A server that headrace starts on this machine could not be started or stopped."""


class JarRefused(ServerError):
    """A jar's bytes are not those of the lock; `details` has what was `expected` and `found`."""


class JarUnavailable(ServerError, Retryable):
    """A jar is not in the cache and could not be fetched."""


class BrokerFailed(ServerError):
    """A Kafka broker did not start, or ended by itself; the message has its own words."""


class ViewError(HeadraceError):
    """The database that an application keeps its views in could not do what was asked."""


class CorruptView(ViewError):
    """The database of an application's views is damaged; it can be computed again."""


class LogError(HeadraceError):
    """The log could not do what was asked; what was committed stays readable."""


class LogBusy(LogError, Retryable):
    """Another process held the write lock longer than this one was willing to wait."""


class DiskFull(LogError, Retryable):
    """No space left on the device. Nothing of the commit is visible."""


class ReadOnlyLog(LogError):
    """The folder cannot be written: its permissions or its filesystem forbid it."""


class NotALog(LogError):
    """The folder holds something else."""


class NewerFormat(LogError):
    """The folder was written by a newer headrace, in a format this one does not know."""


class OlderFormat(LogError):
    """The folder has a format from before the first release, which is no longer read."""


class CorruptSegment(LogError):
    """Stored bytes differ from their checksum; `details` has topic, partition and offset."""


class CorruptCatalog(LogError):
    """The metadata database is damaged."""


class StorageUnavailable(LogError, Retryable):
    """The filesystem that holds a tiered segment does not answer."""


class LogUnavailable(LogError, Retryable):
    """The broker does not answer, or not in time."""


class AccessDenied(LogError):
    """The broker does not know this user, or the user may not do this."""


class UnreadableRecord(LogError):
    """A record's bytes are no row of its topic; `details` has topic, partition and offset."""


class UnreadableValue(UnreadableRecord):
    """A value that Arrow can hold and Python cannot; `details` has its place and its column."""


class OutOfOrderSequence(LogError):
    """A producer sent a sequence number that does not follow its last one."""


class Fenced(LogError):
    """Somebody newer has taken over, so this writer must stop."""


class ProducerFenced(Fenced):
    """A newer producer with the same id has started."""


class MemberFenced(Fenced):
    """The group has gone on without this member; its commit was refused."""
