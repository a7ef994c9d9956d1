"""After any sequence of operations, a log holds the same as its model in plain Python."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.clock import to_datetime
from headrace.errors import OffsetOutOfRange
from headrace.log import EARLIEST, LATEST, Commit, Offset, Position, Time
from headrace.log.roles import Acks
from tests.property.driver import START, Driver, Row
from tests.property.model import Entry, GroupModel, PartitionModel, TopicModel, check_polled

SCHEMA = "k string, n bigint, at timestamp"
TOMBSTONES = timedelta(minutes=30)

NAMES = ("a", "b", "c")
GROUPS = ("x", "y")
ACKS = st.sampled_from(["none", "written", "synced"])
KEYS = st.sampled_from(["k1", "k2", "k3", "k4"])
ROWS = st.lists(
    st.tuples(
        KEYS,
        st.one_of(st.none(), st.integers(0, 99), st.integers(0, 99)),
        st.one_of(st.none(), st.integers(-120, 120)),
    ),
    min_size=1,
    max_size=6,
)


class LogMachine(Driver, RuleBasedStateMachine):
    """Drives a file log and a model of it, and compares them."""

    def teardown(self) -> None:
        self.clean_up()

    # Topics

    @initialize(data=st.data(), acks=ACKS)
    def begin(self, data: st.DataObject, acks: Acks) -> None:
        self.create(data)
        self.join(data, GROUPS[0])
        self.ask_for(acks)

    @precondition(lambda self: len(self.model.topics) < len(NAMES))
    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([n for n in NAMES if n not in self.model.topics]))
        typed, compacts = data.draw(st.booleans()), data.draw(st.booleans())
        partitions = data.draw(st.integers(1, 3))
        choices: dict[str, Any] = {
            "segment_age": data.draw(st.sampled_from(["none", "1m"])),
            "segment_bytes": data.draw(st.sampled_from(["2000", "64MiB"])),
            "compression": data.draw(st.sampled_from(["none", "lz4"])),
            "cleanup": "compact" if compacts else "delete",
            "tombstone_retention": TOMBSTONES,
        }
        if data.draw(st.booleans()):
            choices["tier"] = str(self.folder / "tier")
        columns = {"schema": SCHEMA, "key": "k", "event_time": "at"} if typed else {}
        self.log.create_topic(name, partitions=partitions, settings=choices, **columns)
        self.model.topics[name] = TopicModel(
            name, typed, compacts, [PartitionModel() for _ in range(partitions)]
        )

    @precondition(lambda self: len(self.model.topics) > 1)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = self.topic(data).name
        doomed = [g for g, m in self.model.groups.items() if m.topic == name]
        for group in doomed:
            del self.model.groups[group]
        self.expire()
        for group in doomed:
            self.log.delete_group(group)
        self.log.delete_topic(name)
        del self.model.topics[name]
        # A producer that knows the old topic refuses the new one once, so use another producer.
        self.restart_producer()

    @rule(data=st.data())
    def add_partition(self, data: st.DataObject) -> None:
        topic = self.topic(data)
        if len(topic.partitions) < 4 and not any(
            group.topic == topic.name for group in self.model.groups.values()
        ):
            self.log.alter_topic(topic.name, partitions=len(topic.partitions) + 1)
            topic.partitions.append(PartitionModel())

    # Writing

    @rule(data=st.data(), rows=ROWS, flushes=st.booleans())
    def send(self, data: st.DataObject, rows: list[Row], flushes: bool) -> None:
        topic = self.topic(data)
        added = self.write(self.producer, topic, rows, data.draw(st.booleans()))
        if flushes:
            self.producer.flush()
            self.commit([(topic, added)])
        else:
            with self.producer.transaction() as transaction:
                more = self.write(transaction, topic, rows, by_key=True)
            self.commit([(topic, added)])
            self.commit([(topic, more)])

    @rule(data=st.data(), rows=ROWS, repeats=st.integers(0, 2))
    def append(self, data: st.DataObject, rows: list[Row], repeats: int) -> None:
        topic = self.topic(data)
        partition = data.draw(st.sampled_from(range(len(topic.partitions))))
        expected = [self.entry(topic, row) for row in rows if not topic.typed or row[1] is not None]
        if topic.typed:
            table = pa.Table.from_pylist(
                [value for _, value in expected], schema=self.log.topic(topic.name).topic.schema
            )
        else:
            table = pa.table(
                {
                    "key": pa.array([key for key, _ in expected], pa.binary()),
                    "value": pa.array([value for _, value in expected], pa.binary()),
                }
            )
        self.producer.flush()  # or the records sent before would use the sequence number
        for again in range(repeats + 1):
            receipt = self.producer.append(
                topic.name, table, partition=partition, sequence=self.model.sequence
            )
            assert receipt.duplicate == bool(again)
        self.commit([(topic, [(partition, *pair) for pair in expected])])

    @rule(data=st.data(), rows=ROWS, more=ROWS, aborts=st.booleans())
    def transact(self, data: st.DataObject, rows: list[Row], more: list[Row], aborts: bool) -> None:
        first, second = self.topic(data), self.topic(data)
        group = data.draw(st.sampled_from([None, *self.model.groups]))
        if group is not None:
            self.take(group, 3)
        transaction = self.producer.transaction()
        added = [(t, self.write(transaction, t, r)) for t, r in ((first, rows), (second, more))]
        if group is not None:
            transaction.commit_offsets(self.consumers[group])
        if aborts:
            transaction.abort()
            return
        transaction.commit()
        if group is not None:
            self.remember(group)
        self.commit(added)

    # Consumer groups, each with one member

    @rule(data=st.data(), name=st.sampled_from(GROUPS))
    def join(self, data: st.DataObject, name: str) -> None:
        if name in self.model.groups:
            return
        topic = self.topic(data)
        start = {p: partition.first for p, partition in enumerate(topic.partitions)}
        self.model.groups[name] = GroupModel(topic.name, start, dict(start))
        self.open(name)
        self.consumers[name].commit()

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), count=st.integers(1, 8), commits=st.booleans())
    def poll(self, data: st.DataObject, count: int, commits: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.groups)))
        if self.take(name, count) and commits:
            self.consumers[name].commit()
            self.remember(name)

    def take(self, name: str, count: int) -> bool:
        """Poll and compare; returns false if a fault was in the way."""
        group, consumer = self.model.groups[name], self.consumers[name]
        topic = self.model.topics[group.topic]
        try:
            found = consumer.poll(max_records=count)
        except OffsetOutOfRange as error:
            overtaken = topic.partitions[error.details["partition"]]
            assert group.position[error.details["partition"]] < overtaken.first
            consumer.seek(EARLIEST, topic.name, error.details["partition"])
            group.position[error.details["partition"]] = overtaken.first
            return False
        assert len(found) <= count
        for number, partition in enumerate(topic.partitions):
            mine = [record for record in found if record.partition == number]
            group.position[number] = check_polled(partition, group.position[number], mine)
        if not found:
            for number, partition in enumerate(topic.partitions):
                assert not [e for e in partition.entries if e.offset >= group.position[number]]
        return True

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.groups)))
        group = self.model.groups[name]
        number = data.draw(st.sampled_from(sorted(group.position)))
        partition = self.model.topics[group.topic].partitions[number]
        offset = data.draw(st.integers(partition.first, partition.end))
        self.consumers[name].seek(Offset(offset), group.topic, number)
        group.position[number] = offset

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), crashes=st.booleans())
    def restart(self, data: st.DataObject, crashes: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.groups)))
        if crashes:
            self.expire()
        else:
            self.consumers[name].close()
            self.open(name)

    # Time and upkeep

    @rule(minutes=st.integers(-1, 40))
    def wait(self, minutes: int) -> None:
        self.expire(timedelta(minutes=minutes))

    @precondition(lambda self: any(t.compacts for t in self.model.topics.values()))
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        topic = self.topic(data, lambda topic: topic.compacts)
        self.log.compact(topic.name)
        for partition in topic.partitions:
            partition.compact(to_datetime(self.clock.now()), TOMBSTONES)

    @precondition(lambda self: not all(t.compacts for t in self.model.topics.values()))
    @rule(data=st.data(), waited=st.integers(0, 60), minutes=st.integers(1, 60))
    def retain(self, data: st.DataObject, waited: int, minutes: int) -> None:
        topic = self.topic(data, lambda topic: not topic.compacts)
        self.expire(timedelta(minutes=waited))
        self.log.alter_topic(topic.name, settings={"retention": timedelta(minutes=minutes)})
        self.log.upkeep(topic.name)
        self.log.alter_topic(topic.name, settings={"retention": "none"})
        limit = to_datetime(self.clock.now()) - timedelta(minutes=minutes)
        for partition, state in zip(
            topic.partitions, self.log.topic(topic.name).partitions, strict=True
        ):
            assert partition.first <= state.first <= partition.end == state.end
            assert all(entry.time < limit for entry in partition.cut(state.first))
            if partition.entries:
                assert partition.entries[-1].time >= limit

    @rule()
    def upkeep(self) -> None:
        self.log.upkeep()
        now = to_datetime(self.clock.now())
        for topic in self.model.topics.values():
            for number, partition in enumerate(topic.partitions):
                left = self.read(topic, number)
                if not topic.compacts:
                    assert left == partition.entries
                    continue
                # Only closed segments are compacted, so some duplicates may remain.
                fully = PartitionModel(entries=list(partition.entries))
                fully.compact(now, TOMBSTONES)
                kept, before = set(map(id_of, left)), set(map(id_of, partition.entries))
                assert set(map(id_of, fully.entries)) <= kept <= before
                partition.entries = left

    @rule(acks=ACKS)
    def ask_for(self, acks: Acks) -> None:
        self.acks = acks
        self.restart_producer()

    @rule(reboots=st.booleans())
    def reopen(self, reboots: bool) -> None:
        self.stop()
        self.boots += reboots  # the machine rebooted, and its disk lost nothing
        self.start()
        assert self.producer.next_sequence == self.model.sequence
        self.expire()

    # Comparing

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        topic = self.topic(data)
        number = data.draw(st.sampled_from(range(len(topic.partitions))))
        partition = topic.partitions[number]

        def place() -> tuple[Position, Any]:
            kind = data.draw(st.sampled_from(["earliest", "latest", "offset", "time", "commit"]))
            if kind == "offset":
                offset = data.draw(st.integers(partition.first, partition.end))
                return Offset(offset), lambda e: e.offset >= offset
            if kind == "time":
                minute = data.draw(st.integers(-5, 120))
                at = START + timedelta(minutes=minute)
                return Time.at(at), lambda e: e.time >= at
            if kind == "commit":
                commit = data.draw(st.integers(0, self.model.head + 1))
                return Commit(commit), lambda e: e.commit > commit
            return (EARLIEST, lambda e: True) if kind == "earliest" else (LATEST, lambda e: False)

        (start, after_start), (stop, after_stop) = place(), place()
        assert self.read(topic, number, start=start, stop=stop) == partition.between(
            after_start, lambda e: not after_stop(e)
        )

    @invariant()
    def the_log_holds_what_the_model_holds(self) -> None:
        assert self.log.head() == self.model.head
        assert [t.name for t in self.log.topics()] == sorted(self.model.topics)
        for topic in self.model.topics.values():
            state = self.log.topic(topic.name)
            assert state.frontier == topic.frontier
            for number, partition in enumerate(topic.partitions):
                held = state.partitions[number]
                assert (held.first, held.end) == (partition.first, partition.end)
                assert self.read(topic, number) == partition.entries

    @invariant()
    def groups_go_on_where_the_model_says(self) -> None:
        for name, group in self.model.groups.items():
            lags = {lag.partition: lag for lag in self.log.group(name).lags}
            assert {p: lag.committed for p, lag in lags.items()} == group.committed


def id_of(entry: Entry) -> int:
    return entry.offset


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=max(10, settings.default.max_examples // 2),  # type: ignore[union-attr]
    stateful_step_count=30,
    report_multiple_bugs=False,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
