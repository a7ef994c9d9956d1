"""All errors that headrace raises on purpose, in one tree.

    HeadraceError
    ├── UserError                   the caller's mistake: the command line exits with 2
    │   ├── InvalidName             a topic, group or producer name that is not allowed
    │   ├── InvalidSetting          an unknown setting, or a value out of range
    │   ├── InvalidSchema           an unreadable schema, or a missing key or time column
    │   ├── InvalidPosition         a start or stop position that cannot be parsed
    │   ├── InvalidRecord           a record that does not fit its topic
    │   │   ├── UnknownColumn       a column the topic does not have
    │   │   ├── WrongType           a value its column cannot hold
    │   │   ├── NullKey             a record without the key its topic requires
    │   │   └── RecordTooLarge      a record over the topic's size limit
    │   ├── UnknownTopic            no topic of that name
    │   ├── UnknownPartition        the topic has no such partition
    │   ├── UnknownGroup            no consumer group of that name
    │   ├── UnknownQueue            no queue of that name
    │   ├── UnknownSubject          the key store has no key of that subject
    │   ├── SubjectForgotten        personal data of a subject whose key was destroyed
    │   ├── TopicExists             a topic of that name already exists
    │   ├── Unroutable              a message that no queue is bound to
    │   ├── QueueExists             a queue of that name already exists
    │   ├── GroupActive             the group has members, so its offsets cannot be reset
    │   ├── OffsetOutOfRange        an offset the partition does not hold; names the range
    │   ├── TransactionTooLarge     a transaction larger than one commit may be
    │   ├── InvalidDomain           events, commands or aggregates that cannot be declared so
    │   │   └── ReusedCommand       the id of a command was given to another one before
    │   ├── InvalidPipeline         a declaration that cannot be run; names the user's line
    │   │   └── InvalidWindow       an impossible window or lateness
    │   ├── AlreadyRunning          the same application is already running
    │   ├── ChangedPipeline         the stored results come from another declaration
    │   ├── ForeignCheckpoint       the checkpoint belongs to another application, step or log
    │   ├── NoJava                  no working Java, which Spark and Kafka need
    │   ├── MissingExtra            an optional package is not installed; names the extra
    │   ├── PortTaken               the port of a broker is already in use
    │   ├── UnknownView             no view of that name
    │   ├── UnknownPage             the studio has no page for that name
    │   ├── AmbiguousView           several applications have a view of that name
    │   ├── InvalidQuery            a query that cannot run, or takes too long
    │   ├── MisusedHandle           a producer, consumer or transaction used after its end
    │   └── Unsupported             this kind of log lacks the named capability
    ├── PipelineError               a pipeline had to stop: the command line exits with 1
    │   ├── LawBroken               a batch has rows that are not accounted for
    │   ├── CrowdedKey              a hot key: more rows than a step may hold
    │   ├── PipelineFailed          Spark, or the user's own code in it, failed
    │   └── ProcessFailed           the functions of a process manager failed at an event
    ├── ServerError                 a local server could not be started or stopped
    │   ├── JarRefused              a jar does not match its checksum
    │   ├── JarUnavailable (Retryable)  a jar could not be downloaded
    │   └── BrokerFailed            a Kafka broker did not start, or ended
    ├── ViewError                   an operation on the view database failed
    │   ├── CorruptView             the view database is damaged
    │   └── ViewBehind (Retryable)  a view does not show a commit in time; names what it has
    ├── KeyStoreError               the keys of personal fields cannot be used
    ├── SourceError                 a captured database failed
    │   ├── SourceUnavailable (Retryable)  it is down, or does not answer
    │   └── SourceGap               it no longer has changes that were not read
    ├── StoreError                  a store that a view lives in refused it
    │   ├── StoreFenced             another process has taken over, with newer results
    │   └── StoreUnavailable (Retryable)  it is down, or does not answer
    └── LogError                    a log operation failed: the command line exits with 1
        ├── LogBusy (Retryable)     another process held the write lock too long
        ├── DiskFull (Retryable)    no space left; nothing of the commit is visible
        ├── ReadOnlyLog             the folder is not writable
        ├── NotALog                 the folder is not a headrace log
        ├── NewerFormat             the folder was written by a newer headrace
        ├── OlderFormat             the folder has a format that is no longer supported
        ├── CorruptSegment          stored bytes do not match their checksum
        ├── CorruptCatalog          the metadata database is damaged
        ├── QueueFull (Retryable)   a bounded queue has no room
        ├── StorageUnavailable (Retryable)  a tiered segment's filesystem does not answer
        ├── LogUnavailable (Retryable)  the broker does not answer
        ├── RegistryUnavailable (Retryable)  the schema registry does not answer
        ├── AccessDenied            the broker or registry rejected the login or the operation
        ├── UnreadableRecord        a record that does not match its topic's schema
        │   ├── UnreadableEvent     a stored event, command or state that the code cannot read
        │   └── UnreadableValue     a value that is valid in Arrow but not in Python
        ├── ChangesRemoved          compaction or retention removed changes that an undo needs
        ├── Conflict                an aggregate does not have the version that was expected
        │   └── Contended (Retryable)  a command lost to others as often as it was tried
        ├── ConditionFailed         a condition of a transaction does not hold; names the commit
        ├── OutOfOrderSequence      a producer skipped a sequence number
        └── Fenced                  a newer writer has taken over
            ├── ProducerFenced      a newer producer of the same id has started
            ├── MemberFenced        the group has moved on without this member
            └── LeaseLost           a message's lease has ended, and another worker may have it

A call that raised a `Retryable` may succeed later, unchanged; any other fails again. Errors keep
all their fields when pickled, because Spark's executors pickle them.
"""

from __future__ import annotations

from typing import Any


class HeadraceError(Exception):
    """An error with a message, a `hint` on what to do next, and its facts by name in `details`."""

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
    """A mistake of the caller."""


class InvalidName(UserError):
    """A name that is not 1 to 249 letters, digits, dots, underscores and dashes."""


class InvalidSetting(UserError):
    """An unknown setting, or one whose value is out of range."""


class InvalidSchema(UserError):
    """A schema that cannot be read, or that lacks the key or event-time column it names."""


class InvalidPosition(UserError):
    """A position that is not an offset, a time, a commit or an end of the log."""


class InvalidRecord(UserError):
    """A record that does not fit its topic."""


class UnknownColumn(InvalidRecord):
    """A record with a column that its topic lacks, or without one that it requires."""


class WrongType(InvalidRecord):
    """A value that its column's type cannot hold."""


class NullKey(InvalidRecord):
    """A record without a key, in a topic that requires one."""


class RecordTooLarge(InvalidRecord):
    """A record over the topic's `max_record_bytes`."""


class UnknownTopic(UserError):
    """No topic of that name."""


class UnknownPartition(UserError):
    """A partition number the topic does not have."""


class UnknownGroup(UserError):
    """No consumer group of that name."""


class UnknownQueue(UserError):
    """No queue of that name."""


class UnknownSubject(UserError):
    """The key store has never had a key of that subject."""


class SubjectForgotten(UserError):
    """Personal data for a subject whose key was destroyed."""


class TopicExists(UserError):
    """A topic of that name already exists."""


class Unroutable(UserError):
    """A message for a router of which no binding matches."""


class QueueExists(UserError):
    """A queue of that name already exists."""


class GroupActive(UserError):
    """The group has live members, and the operation requires an idle group."""


class OffsetOutOfRange(UserError):
    """An offset before the first or after the last; `details` has `first` and `end`."""


class TransactionTooLarge(UserError):
    """A transaction over the size limit of one commit."""


class InvalidDomain(UserError):
    """Events, commands or aggregates that cannot be declared or used in this way."""


class ReusedCommand(InvalidDomain):
    """The id of a command was given to another command before; `details` has the `id`."""


class InvalidPipeline(UserError):
    """A pipeline that cannot run as declared."""


class InvalidWindow(InvalidPipeline):
    """An impossible window or lateness."""


class AlreadyRunning(UserError):
    """The same application is already running, in this process or another."""


class ChangedPipeline(UserError):
    """The stored results were computed by another declaration than the current one."""


class ForeignCheckpoint(UserError):
    """A checkpoint of another application, step or log."""


class NoJava(UserError):
    """No working Java. Spark and Kafka run on Java 17 or newer."""


class MissingExtra(UserError):
    """An optional package is not installed; the hint has the command that installs it."""


class PortTaken(UserError):
    """Another process listens on the port `details["port"]`."""


class UnknownView(UserError):
    """No view of that name."""


class UnknownPage(UserError):
    """The studio has no page for an application, a step or a simulation of that name."""


class AmbiguousView(UserError):
    """A view name that several applications use, without the application."""


class InvalidQuery(UserError):
    """A query that SQLite does not understand, that would write, or that takes too long."""


class MisusedHandle(UserError):
    """A producer, consumer or transaction used after its end, in a forked child, or two at once; or
    a settlement of a message that is settled already, or is not the handler's."""


class Unsupported(UserError):
    """The log lacks a capability; `details["capability"]` names it."""


class PipelineError(HeadraceError):
    """A pipeline had to stop. Its stored results are unchanged."""


class LawBroken(PipelineError):
    """Rows in differ from rows counted, filtered, late and dead; `details["law"]` has the terms."""


class CrowdedKey(PipelineError):
    """A hot key: more rows than its step may hold; `details` has the key and the count."""


class PipelineFailed(PipelineError):
    """Spark failed, or an expression of the user failed on a row."""


class ProcessFailed(PipelineError):
    """The functions of a process manager failed; `details` has the `commit` and the `cause`."""


class ServerError(HeadraceError):
    """A server that headrace starts on this machine could not be started or stopped."""


class JarRefused(ServerError):
    """A jar does not match its checksum in the lock; `details` has `expected` and `found`."""


class JarUnavailable(ServerError, Retryable):
    """A jar is not in the cache and could not be downloaded."""


class BrokerFailed(ServerError):
    """A Kafka broker did not start, or stopped by itself; the message quotes its error."""


class ViewError(HeadraceError):
    """An operation on an application's view database failed."""


class CorruptView(ViewError):
    """An application's view database is damaged; its views can be computed again."""


class ViewBehind(ViewError, Retryable):
    """A view does not show a commit in time; `details` has the `commit` that is `reached`."""


class KeyStoreError(HeadraceError):
    """The keys of personal fields cannot be read or written, or others can read them."""


class SourceError(HeadraceError):
    """A database whose changes are captured failed, or what it sent cannot be written."""


class SourceUnavailable(SourceError, Retryable):
    """A captured database is down, or does not answer."""


class SourceGap(SourceError):
    """A captured database no longer has changes that were not read; `details` has positions."""


class StoreError(HeadraceError):
    """A store that a view lives in refused it."""


class StoreFenced(StoreError):
    """Another process follows the view with results of another generation."""


class StoreUnavailable(StoreError, Retryable):
    """A store is down, or does not answer. What was not applied is applied when it is back."""


class LogError(HeadraceError):
    """A log operation failed; committed records stay readable."""


class LogBusy(LogError, Retryable):
    """Another process held the write lock for longer than this one waits."""


class DiskFull(LogError, Retryable):
    """No space left on the device. Nothing of the commit is visible."""


class ReadOnlyLog(LogError):
    """The folder is not writable: its permissions or its filesystem forbid it."""


class NotALog(LogError):
    """The folder holds something else."""


class NewerFormat(LogError):
    """The folder was written by a newer headrace, in a format this one does not know."""


class OlderFormat(LogError):
    """The folder has a format from before the first release, which is no longer supported."""


class CorruptSegment(LogError):
    """Stored bytes do not match their checksum; `details` has topic, partition and offset."""


class CorruptCatalog(LogError):
    """The metadata database is damaged."""


class QueueFull(LogError, Retryable):
    """A bounded queue has no room for more messages; `details` has `unfinished` and `bound`."""


class StorageUnavailable(LogError, Retryable):
    """The filesystem that holds a tiered segment does not answer."""


class LogUnavailable(LogError, Retryable):
    """The broker does not answer, or not in time."""


class RegistryUnavailable(LogError, Retryable):
    """The schema registry does not answer, or not in time."""


class AccessDenied(LogError):
    """The broker or registry rejected the user's login, or the user lacks the permission."""


class UnreadableRecord(LogError):
    """A record that does not match its topic's schema; `details` has its topic and offset."""


class UnreadableEvent(UnreadableRecord):
    """A stored event, command or state that the declared classes and upcasters cannot read."""


class UnreadableValue(UnreadableRecord):
    """A value that is valid in Arrow but not in Python; `details` has its offset and column."""


class ChangesRemoved(LogError):
    """Compaction or retention has removed captured changes that an undo needs."""


class Conflict(LogError):
    """An aggregate does not have the expected version; `details` has its `version`."""


class Contended(Conflict, Retryable):
    """A command lost to others as often as it was tried. Nothing of it is in the log."""


class ConditionFailed(LogError):
    """A row that a transaction's condition excludes was committed; `details` has its `commit`."""


class OutOfOrderSequence(LogError):
    """A producer sent a sequence number that does not follow its last one."""


class Fenced(LogError):
    """A newer writer has taken over, so this one must stop."""


class ProducerFenced(Fenced):
    """A newer producer with the same id has started."""


class MemberFenced(Fenced):
    """The group has moved on without this member; its commit was rejected."""


class LeaseLost(Fenced):
    """A message's lease has ended; `details["messages"]` has the ids. Nothing was settled."""
