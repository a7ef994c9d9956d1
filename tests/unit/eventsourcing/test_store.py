"""Stores: commands, states at any point, snapshots, boundaries and repeated commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace.eventsourcing as es
from headrace.errors import (
    Conflict,
    Contended,
    InvalidDomain,
    ReusedCommand,
    UnreadableEvent,
    Unsupported,
    WrongType,
)
from headrace.eventsourcing.stored import event_rows
from headrace.log import Log
from headrace.log.file.log import FileLog
from tests import bank as b
from tests.bank import ACCOUNT, Account, Deposit, Deposited, Empty, Open, Opened, OpenOnly, Withdraw
from tests.conformance.limited import LimitedLog

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with FileLog(tmp_path / "log") as log:
        yield log


@pytest.fixture
def store(log: Log) -> Iterator[es.Store]:
    with b.bank().open(log) as store:
        yield store


def deposited(store: es.Store, *amounts: int, id: str = "a") -> es.Store:
    """The store after an account was opened and had deposits."""
    store.handle(ACCOUNT, id, Open("mia"))
    for amount in amounts:
        store.handle(ACCOUNT, id, Deposit(amount))
    return store


def test_a_command_commits_its_events_and_answers_with_the_state(store: es.Store) -> None:
    first = store.handle(ACCOUNT, "a", Open("mia"))
    answer = deposited(store).handle(ACCOUNT, "a", Deposit(5), id="c-1", metadata={"who": "mia"})
    assert isinstance(answer, es.Handled)
    assert (answer.events, answer.version) == ((Deposited(5),), 2)
    assert answer.state == Account("mia", 5)
    assert answer.commit == store.log.head() > (first.commit or 0)
    assert store.load(ACCOUNT, "a") == es.Loaded(Account("mia", 5), 2, answer.commit)


def test_an_event_is_stored_with_all_that_says_where_it_comes_from(store: es.Store) -> None:
    deposited(store).handle(
        ACCOUNT, "a", Deposit(5), id="c-1", metadata={"who": "mia", "why": "pay"}, at=NOON
    )
    *_, last = store.events([[["aggregate:account/a"]]])
    assert last == es.StoredEvent(
        "account/a", 2, "money-deposited", 1, NOON, "c-1:0", "c-1", {"who": "mia", "why": "pay"},
        ("type:money-deposited", "aggregate:account/a"), Deposited(5), store.log.head(),
    )  # fmt: skip


def test_a_refused_command_is_recorded_with_its_reason_and_changes_nothing(
    store: es.Store,
) -> None:
    answer = deposited(store, 5).handle(ACCOUNT, "a", Withdraw(6), id="c-1")
    assert answer == es.Refused("c-1", store.log.head(), "the balance is 5", 2, Account("mia", 5))
    *_, last = store.commands(ACCOUNT, "a")
    assert (last.outcome, last.reason, last.command) == (
        "refused", "the balance is 5", Withdraw(6),
    )  # fmt: skip
    assert [c.outcome for c in store.commands(ACCOUNT, "a")] == ["accepted", "accepted", "refused"]
    assert store.load(ACCOUNT, "a").version == 2


def test_a_command_that_is_sent_twice_has_one_effect_and_the_same_answer(store: es.Store) -> None:
    deposited(store)
    first = store.handle(ACCOUNT, "a", Deposit(5), id="c-1")
    store.handle(ACCOUNT, "a", Deposit(7), id="c-2")
    again = store.handle(ACCOUNT, "a", Deposit(5), id="c-1")
    assert again == es.Handled(
        "c-1", first.commit, (Deposited(5),), 2, Account("mia", 5), repeated=True
    )
    assert store.load(ACCOUNT, "a").state.balance == 12


def test_a_command_that_is_not_recorded_has_no_id_to_be_sent_again_with(log: Log) -> None:
    """A refused one would leave no trace, and another with its id would get its answer."""
    with b.bank(record_commands=False).open(log) as store:
        deposited(store)
        with pytest.raises(InvalidDomain, match="does not record its commands"):
            store.handle(ACCOUNT, "a", Deposit(5), id="c-1")
        with pytest.raises(InvalidDomain, match="does not record its commands"):
            store.decide_across(b.ONE_ACCOUNT, OpenOnly("noa", "b"), id="c-1")
        assert store.load(ACCOUNT, "a").version == 1


def test_a_command_that_is_sent_twice_at_once_has_one_effect(log: Log, store: es.Store) -> None:
    deposited(store)
    once = iter([True])

    def interrupted(state: Account, command: Any) -> Any:
        if next(once, False):
            store.handle(ACCOUNT, "a", Empty(), id="c-1")  # has no events, so no version
        return b.decide(state, command)

    slow = b.account(decide=interrupted)
    with b.bank(slow).open(log) as other:
        answer = other.handle(slow, "a", Empty(), id="c-1")
    assert answer.repeated
    assert [c.id for c in store.commands(ACCOUNT, "a")][1:] == ["c-1"]


def test_a_refusal_is_the_same_answer_when_the_state_has_changed(store: es.Store) -> None:
    deposited(store)
    first = store.handle(ACCOUNT, "a", Withdraw(5), id="c-1")
    store.handle(ACCOUNT, "a", Deposit(7))
    again = store.handle(ACCOUNT, "a", Withdraw(5), id="c-1")
    assert again == es.Refused(
        "c-1", first.commit, "the balance is 0", 1, Account("mia"), repeated=True
    )


def test_a_repeated_command_is_not_held_to_the_version_that_it_expected(store: es.Store) -> None:
    deposited(store)
    first = store.handle(ACCOUNT, "a", Deposit(5), id="c-1", expect=1)
    again = store.handle(ACCOUNT, "a", Deposit(5), id="c-1", expect=1)
    assert again.repeated
    assert again.commit == first.commit


def test_all_events_of_a_repeated_command_are_in_its_answer(store: es.Store) -> None:
    deposited(store, 4)
    first = store.handle(ACCOUNT, "a", Empty(), id="c-1")
    again = store.handle(ACCOUNT, "a", Empty(), id="c-1")
    assert len(again.events) == 4  # type: ignore[union-attr]
    assert again == es.Handled(
        "c-1", first.commit, first.events, 6, Account("mia"), repeated=True  # type: ignore[union-attr]
    )  # fmt: skip


def test_an_id_is_of_one_command(store: es.Store) -> None:
    deposited(store).handle(ACCOUNT, "a", Deposit(5), id="c-1")
    with pytest.raises(ReusedCommand, match="c-1"):
        store.handle(ACCOUNT, "a", Deposit(6), id="c-1")
    with pytest.raises(ReusedCommand, match="c-1"):
        store.handle(ACCOUNT, "b", Deposit(5), id="c-1")
    with pytest.raises(ReusedCommand, match="'deposit' to 'account/a'"):
        store.handle(ACCOUNT, "a", Withdraw(5), id="c-1")


def test_commands_of_which_only_events_are_recorded(log: Log) -> None:
    with b.bank(record_commands=False).open(log) as store:
        deposited(store, 5)
        answer = store.handle(ACCOUNT, "a", Withdraw(6))
        assert isinstance(answer, es.Refused)
        assert answer.commit is None
    assert [topic.name for topic in log.topics()] == ["bank.events", "bank.snapshots"]


def test_a_writer_that_has_not_seen_the_last_event_decides_again(log: Log, store: es.Store) -> None:
    deposited(store, 5)
    with b.bank().open(log) as other:
        other.load(ACCOUNT, "a")
        store.handle(ACCOUNT, "a", Withdraw(5))
        answer = other.handle(ACCOUNT, "a", Withdraw(5))
    assert isinstance(answer, es.Refused)
    assert answer.reason == "the balance is 0"


def test_a_refusal_is_not_decided_on_what_was_remembered(log: Log) -> None:
    domain = b.bank(record_commands=False)
    with domain.open(log) as store, domain.open(log) as other:
        deposited(store, 5)
        other.load(ACCOUNT, "a")
        store.handle(ACCOUNT, "a", Deposit(5))
        assert isinstance(other.handle(ACCOUNT, "a", Withdraw(10)), es.Handled)


def test_a_command_is_only_decided_on_the_expected_version(log: Log, store: es.Store) -> None:
    deposited(store, 5)
    with b.bank().open(log) as other:
        other.load(ACCOUNT, "a")
        store.handle(ACCOUNT, "a", Deposit(5), expect=2)
        with pytest.raises(Conflict) as caught:
            other.handle(ACCOUNT, "a", Deposit(5), expect=2)
    assert caught.value.details["version"] == 3


def test_the_loser_of_every_race_is_told(log: Log, store: es.Store) -> None:
    deposited(store, 5)

    def interrupted(state: Account, command: Any) -> Any:
        store.handle(ACCOUNT, "a", Deposit(1))  # another writer is always first
        return Deposited(100)

    slow = b.account(decide=interrupted)
    with b.bank(slow).open(log) as other, pytest.raises(Contended):
        other.handle(slow, "a", Deposit(100))
    assert store.load(ACCOUNT, "a").state.balance == 25


def test_a_command_may_be_accepted_without_events(store: es.Store) -> None:
    answer = deposited(store).handle(ACCOUNT, "a", Empty())
    assert isinstance(answer, es.Handled)
    assert (answer.events, answer.version) == ((), 1)


def test_the_state_as_of_a_version_a_commit_and_a_time(store: es.Store) -> None:
    commits = []
    for hour, command in enumerate([Open("mia"), *map(Deposit, range(1, 9))]):
        answer = store.handle(ACCOUNT, "a", command, at=NOON + timedelta(hours=hour))
        commits.append(answer.commit or 0)
    for version in range(10):
        balance = sum(range(version))
        assert store.load(ACCOUNT, "a", version=version).state.balance == balance
        before = commits[version - 1] if version else 0
        assert store.load(ACCOUNT, "a", commit=before).state.balance == balance
        at = NOON + timedelta(hours=version - 1, minutes=30)
        assert store.load(ACCOUNT, "a", at=at).state.balance == balance
    with pytest.raises(InvalidDomain, match="9 events"):
        store.load(ACCOUNT, "a", version=10)


def test_the_history_has_the_state_before_and_after_each_event(store: es.Store) -> None:
    deposited(store, 5, 7)
    found = [
        (c.event.event, c.before.balance, c.after.balance) for c in store.history(ACCOUNT, "a")
    ]
    assert found == [(Opened("mia"), 0, 0), (Deposited(5), 0, 5), (Deposited(7), 5, 12)]


def test_a_part_of_the_history_is_read_as_it_is_in_the_whole(store: es.Store) -> None:
    deposited(store, 5, 7).handle(ACCOUNT, "a", Withdraw(9))
    deposited(store, 1, id="b").handle(ACCOUNT, "a", Empty())
    store.handle(ACCOUNT, "a", Withdraw(1))
    whole = list(store.history(ACCOUNT, "a"))
    assert [change.after.balance for change in whole] == [0, 5, 12, 3, 2, 1, 0]
    for upto in range(store.log.head() + 1):
        then = [change for change in whole if change.event.commit <= upto]
        assert list(store.history(ACCOUNT, "a", upto=upto)) == then
        for last in (1, 2, 4, 100):
            # Those of the first one's commit come with it.
            first = then[-last:][0].event.commit if then else 0
            wanted = [change for change in then if change.event.commit >= first]
            assert list(store.history(ACCOUNT, "a", upto=upto, last=last)) == wanted


def test_the_end_of_a_history_is_read_from_its_snapshot(log: Log, store: es.Store) -> None:
    deposited(store, *range(1, 30))
    seen: list[Any] = []

    def watched(state: Account, event: Any) -> Account:
        seen.append(event)
        return b.evolve(state, event)

    watching = b.account(evolve=watched)
    with b.bank(watching).open(log) as other:
        assert len(list(other.history(watching, "a", upto=log.head() - 10, last=2))) == 2
    assert len(seen) <= 5


def test_commands_are_found_with_their_outcome(store: es.Store) -> None:
    deposited(store, 5, id="a").handle(ACCOUNT, "b", Deposit(1))
    store.handle(ACCOUNT, "a", Withdraw(6))
    mine = list(store.commands(ACCOUNT, "a"))
    assert [each.reason for each in mine] == [None, None, "the balance is 5"]
    assert list(store.commands(ACCOUNT, "a", last=2)) == mine[1:]
    assert list(store.commands(ACCOUNT, "a", upto=mine[1].commit)) == mine[:2]
    newest = store.latest_commands(3)
    assert [(each.aggregate, each.reason) for each in newest] == [
        ("account/a", "the balance is 5"), ("account/b", "the account is not open"),
        ("account/a", None),
    ]  # fmt: skip


def test_a_snapshot_is_stored_every_so_many_events_and_read(log: Log, store: es.Store) -> None:
    deposited(store, 1, 1, 1, 1, 1, 1)
    snapshots = [
        v for b_ in log.read("bank.snapshots") for v in b_.data.column("version").to_pylist()
    ]
    assert snapshots == [3, 6]
    events = []

    def watched(state: Account, event: Any) -> Account:
        events.append(event)
        return b.evolve(state, event)

    watching = b.account(evolve=watched)
    with b.bank(watching).open(log) as other:
        assert other.load(watching, "a").state.balance == 6
    assert len(events) == 1


def test_a_command_with_many_events_stores_one_snapshot(log: Log, store: es.Store) -> None:
    deposited(store, 8).handle(ACCOUNT, "a", Empty())
    snapshots = [
        v for b_ in log.read("bank.snapshots") for v in b_.data.column("version").to_pylist()
    ]
    assert snapshots == [10]
    with b.bank().open(log) as other:
        assert other.load(ACCOUNT, "a").state == Account("mia")


def snapshots(log: Log) -> list[tuple[str, int]]:
    """The aggregates and versions of all snapshots, in order."""
    found = [row for batch in log.read("bank.snapshots") for row in batch.data.to_pylist()]
    return [(row["aggregate"], row["version"]) for row in found]


def moving(*events: tuple[str, int]) -> es.Domain:
    """The bank with a decision that deposits amounts, whatever its command."""
    rule = es.decision(
        "one-account", initial=b.Taken(), evolve=lambda state, event: state,
        decide=lambda state, command: [es.to(ACCOUNT, id, Deposited(n)) for id, n in events],
        matches=b.ONE_ACCOUNT.matches, commands=b.ONE_ACCOUNT.commands,
    )  # fmt: skip
    return es.Domain("bank", [ACCOUNT], decisions=[rule])


def test_events_of_decisions_count_for_snapshots(log: Log, store: es.Store) -> None:
    domain = moving(("a", 1), ("b", 1), ("b", 1))
    with domain.open(log) as other:
        for number in range(4):
            other.decide_across(domain.decisions[0], OpenOnly(str(number), "x"))
    assert snapshots(log) == [("account/b", 4), ("account/a", 3), ("account/b", 6)]
    deposited(store, 1, 1, id="b")
    assert snapshots(log)[3:] == [("account/b", 9)]
    events = []

    def watched(state: Account, event: Any) -> Account:
        events.append(event)
        return b.evolve(state, event)

    watching = b.account(evolve=watched)
    with b.bank(watching).open(log) as fresh:
        assert fresh.load(watching, "b").state.balance == 8 + 2
    assert len(events) == 2


@dataclass(frozen=True)
class Renamed:
    """A newer class of the account's state."""

    holder: str | None = None
    cents: int = 0


def renamed(state: Renamed, event: Any) -> Renamed:
    old = b.evolve(Account(state.holder, state.cents // 100), event)
    return Renamed(old.owner, old.balance * 100)


@pytest.mark.parametrize(
    ("upgrade", "folded"),
    [
        (None, 7),
        (lambda data, version: None, 7),
        (lambda data, version: {"holder": data["owner"], "cents": data["balance"] * 100}, 1),
    ],
)
def test_a_snapshot_of_another_version_is_ignored_or_upgraded(
    log: Log, store: es.Store, upgrade: Any, folded: int
) -> None:
    deposited(store, 1, 1, 1, 1, 1, 1)
    events = []

    def watched(state: Renamed, event: Any) -> Renamed:
        events.append(event)
        return renamed(state, event)

    newer = es.aggregate(
        "account", initial=Renamed(), decide=lambda state, command: (), evolve=watched,
        events=b.EVENTS, snapshot_every=3, state_version=2, upgrade=upgrade,
    )  # fmt: skip
    with es.Domain("bank", [newer]).open(log) as other:
        assert other.load(newer, "a").state == Renamed("mia", 600)
    assert len(events) == folded


def test_a_snapshot_of_newer_code_is_ignored_by_older(log: Log) -> None:
    newer = b.account(state_version=2)
    with b.bank(newer).open(log) as store:
        store.handle(newer, "a", Open("mia"))
        for _ in range(3):
            store.handle(newer, "a", Deposit(1))

    def upgrade(data: Any, version: int) -> Any:
        raise AssertionError(f"asked to upgrade version {version}")

    for old in (ACCOUNT, b.account(upgrade=upgrade)):
        with b.bank(old).open(log) as older:
            assert older.load(old, "a").state == Account("mia", 3)


def test_a_rule_over_aggregates_holds_for_all_of_them(log: Log, store: es.Store) -> None:
    first = store.decide_across(b.ONE_ACCOUNT, OpenOnly("mia", "a"), id="c-1")
    second = store.decide_across(b.ONE_ACCOUNT, OpenOnly("mia", "b"))
    other = store.decide_across(b.ONE_ACCOUNT, OpenOnly("noa", "c"))
    assert isinstance(first, es.Handled)
    assert isinstance(second, es.Refused)
    assert isinstance(other, es.Handled)
    again = store.decide_across(b.ONE_ACCOUNT, OpenOnly("mia", "a"), id="c-1")
    assert (again.commit, again.repeated) == (first.commit, True)
    assert store.load(ACCOUNT, "a").state == Account("mia")
    assert store.load(ACCOUNT, "b").version == 0


def test_of_two_decisions_on_the_same_boundary_one_wins(log: Log, store: es.Store) -> None:
    def interrupted(state: b.Taken, command: OpenOnly) -> Any:
        store.decide_across(b.ONE_ACCOUNT, OpenOnly(command.owner, "first"))
        return b.decide_only(state, command)

    slow = es.decision(
        "one-account", initial=b.Taken(), evolve=b.ONE_ACCOUNT.evolve, decide=interrupted,
        matches=b.ONE_ACCOUNT.matches, commands=b.ONE_ACCOUNT.commands,
    )  # fmt: skip
    with es.Domain("bank", [ACCOUNT], decisions=[slow]).open(log) as other:
        assert isinstance(other.decide_across(slow, OpenOnly("mia", "second")), es.Refused)
    assert [e.aggregate for e in store.events([es.match(types=["account-opened"])])] == [
        "account/first"
    ]


def test_a_decision_gives_the_next_version_of_each_aggregate(store: es.Store) -> None:
    deposited(store, 5)
    deposited(store, 0, id="b")

    def both(state: b.Taken, command: OpenOnly) -> Any:
        return [es.to(ACCOUNT, id, Deposited(n)) for id, n in (("a", -2), ("b", 1), ("b", 1))]

    split = es.decision(
        "one-account", initial=b.Taken(), evolve=lambda state, event: state, decide=both,
        matches=b.ONE_ACCOUNT.matches, commands=b.ONE_ACCOUNT.commands,
    )  # fmt: skip
    with es.Domain("bank", [ACCOUNT], decisions=[split]).open(store.log) as other:
        other.decide_across(split, OpenOnly("x", "y"))
    assert [store.load(ACCOUNT, id).state.balance for id in "ab"] == [3, 2]
    assert [store.load(ACCOUNT, id).version for id in "ab"] == [3, 4]


def test_a_state_that_evolve_forgot_is_refused(log: Log) -> None:
    broken = b.account(evolve=lambda state, event: None)
    with b.bank(broken).open(log) as store, pytest.raises(InvalidDomain, match="evolve"):
        store.handle(broken, "a", Open("mia"))


def test_a_decision_that_is_none_is_refused(log: Log) -> None:
    broken = b.account(decide=lambda state, command: None)
    with b.bank(broken).open(log) as store, pytest.raises(InvalidDomain, match="decide"):
        store.handle(broken, "a", Open("mia"))


def test_a_missing_event_is_never_passed_over(log: Log, store: es.Store) -> None:
    deposited(store, 5)
    rows = event_rows(store.domain, [("account/a", 4, Deposited(1))], "c", NOON, {})
    with log.producer() as producer:
        for row in rows:
            producer.send("bank.events", row)
    with pytest.raises(UnreadableEvent, match="event 4"):
        store.load(ACCOUNT, "a")


@pytest.mark.parametrize("metadata", [{"who": 7}, {7: "who"}])
def test_metadata_are_texts(store: es.Store, metadata: Any) -> None:
    with pytest.raises(WrongType):
        store.handle(ACCOUNT, "a", Open("mia"), metadata=metadata)


@pytest.mark.parametrize("at", [datetime(2026, 1, 1), "2026-01-01"])
def test_a_time_has_a_zone(store: es.Store, at: Any) -> None:
    with pytest.raises(WrongType, match="zone"):
        store.handle(ACCOUNT, "a", Open("mia"), at=at)
    with pytest.raises(WrongType, match="zone"):
        deposited(store).load(ACCOUNT, "a", at=at)


@pytest.mark.parametrize("version", [-1, "1", True])
def test_versions_are_counted_from_0(store: es.Store, version: Any) -> None:
    with pytest.raises(InvalidDomain, match=r"cannot have the version .*") as caught:
        deposited(store).load(ACCOUNT, "a", version=version)
    assert "from 0" in str(caught.value.hint)


HALF = "half a character: \ud800"


@pytest.mark.parametrize(
    "used",
    [
        lambda store: store.handle(ACCOUNT, "a", Open("mia"), id=HALF),
        lambda store: store.handle(ACCOUNT, HALF, Open("mia")),
        lambda store: store.load(ACCOUNT, HALF),
        lambda store: es.refuse(HALF),
        lambda store: es.match(tags=[HALF]),
    ],
)
def test_text_that_cannot_be_stored_is_refused(store: es.Store, used: Any) -> None:
    with pytest.raises(InvalidDomain, match=r"\\ud800"):
        used(store)


class LikeKafka(LimitedLog):
    """A log that says that it is on Kafka."""


@pytest.mark.parametrize("kind", [LimitedLog, LikeKafka])
def test_a_log_without_conditions_is_refused(tmp_path: Path, kind: type[LimitedLog]) -> None:
    with kind(tmp_path / "log") as log:
        if kind is LikeKafka:
            log.url = "kafka://broker:9092"
        with pytest.raises(Unsupported) as caught:
            b.bank().open(log)
        assert log.topics() == []
    assert "no commit on a condition" in caught.value.message
    assert ("Kafka" in caught.value.message) is (kind is LikeKafka)
    for refused in ("versions", "aggregates", "sent twice", "process managers"):
        assert refused in caught.value.message
    for possible in ("file:./data", "'bank.events'", "producer(id=...)"):
        assert possible in caught.value.hint


def stricter(state: Account, command: Any) -> Any:
    """Refuse withdrawals that leave less than 3."""
    if isinstance(command, Withdraw) and command.amount > state.balance - 3:
        return es.refuse("less than 3 would be left")
    return b.decide(state, command)


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_if_lists_the_commands_that_would_be_decided_differently(
    log: Log, partitions: int
) -> None:
    with b.bank(partitions=partitions).open(log) as store:
        deposited(store, 5)
        deposited(store, 9, id="b")
        store.handle(ACCOUNT, "a", Withdraw(4))
        store.handle(ACCOUNT, "b", Withdraw(4))
        store.handle(ACCOUNT, "a", Withdraw(2))
        store.handle(ACCOUNT, "b", Empty())
        head = log.head()
        found = list(store.what_if(ACCOUNT, stricter))
        assert [(d.command.aggregate, d.state.balance, d.was, d.would) for d in found] == [
            ("account/a", 5, (b.Withdrawn(4),), es.refuse("less than 3 would be left")),
            ("account/a", 1, es.refuse("the balance is 1"), es.refuse("less than 3 would be left")),
        ]
        assert list(store.what_if(ACCOUNT, stricter, aggregate_id="a")) == found
        assert list(store.what_if(ACCOUNT, stricter, aggregate_id="b")) == []
        assert list(store.what_if(ACCOUNT, stricter, after=found[0].command.commit)) == found[1:]
        assert list(store.what_if(ACCOUNT, b.decide)) == []
        assert log.head() == head


@pytest.mark.parametrize("id", [None, "a"])
def test_what_if_reads_events_and_commands_up_to_one_commit(
    store: es.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id: str | None
) -> None:
    deposited(store, 5)

    def then_a_deposit(reading: Any) -> Any:
        def both(*args: Any, **settings: Any) -> Any:
            found = reading(*args, **settings)
            store.handle(ACCOUNT, "a", Deposit(1))
            return found

        return both

    with FileLog(tmp_path / "log") as log, b.bank().open(log) as reader:
        for name in ("head", "find"):
            monkeypatch.setattr(log, name, then_a_deposit(getattr(log, name)))
        assert list(reader.what_if(ACCOUNT, b.decide, aggregate_id=id)) == []


def test_what_if_a_decision_had_another_rule(store: es.Store) -> None:
    for owner, id in (("mia", "a"), ("mia", "b"), ("noa", "c")):
        store.decide_across(b.ONE_ACCOUNT, OpenOnly(owner, id))

    def two(state: b.Taken, command: OpenOnly) -> Any:
        return b.decide_only(b.Taken(state.accounts // 2), command)

    assert list(store.what_if(b.ONE_ACCOUNT, b.decide_only)) == []
    (found,) = store.what_if(b.ONE_ACCOUNT, two)
    assert (found.command.command, found.state) == (OpenOnly("mia", "b"), b.Taken(1))
    assert found.would == (Opened("mia"),)


def test_what_if_needs_recorded_commands(log: Log) -> None:
    with b.bank(record_commands=False).open(log) as store, pytest.raises(InvalidDomain):
        list(store.what_if(ACCOUNT, stricter))
