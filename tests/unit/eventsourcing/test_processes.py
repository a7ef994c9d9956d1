"""Process managers: reactions, refusals, time-outs in event time, failures, several runners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace.eventsourcing as es
from headrace.errors import InvalidDomain, ProcessFailed
from headrace.log import LATEST, Commit, Log
from headrace.log.file.log import FileLog
from tests import transfers as t
from tests.transfers import ACCOUNT, TRANSFERS, Arrive, Ask, Close, Deposit, GiveBack, Remind

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with FileLog(tmp_path / "log") as log:
        yield log


@pytest.fixture
def store(log: Log) -> Iterator[es.Store]:
    with t.bank().open(log) as store:
        store.handle(ACCOUNT, "a", Deposit(100), at=NOON)
        yield store


def asked(store: es.Store, target: str, amount: int = 30, **given: Any) -> None:
    given = {"at": NOON, **given}
    answer = store.handle(ACCOUNT, "a", Ask(f"a>{target}", target, amount), **given)
    assert isinstance(answer, es.Handled)


def balances(store: es.Store, *ids: str) -> list[int]:
    return [store.load(ACCOUNT, id).state.balance for id in ids]


def sent(store: es.Store) -> list[tuple[str, Any]]:
    """The commands of processes, in the order in which they were decided."""
    found = [c for id in "abc" for c in store.commands(ACCOUNT, id) if "process" in c.metadata]
    return [(c.aggregate, c.command) for c in sorted(found, key=lambda c: c.commit)]


def stored(log: Log, topic: str = "bank.transfers.states") -> list[dict[str, Any]]:
    """The last row of each instance."""
    last = {}
    for batch in log.read(topic):
        for record in batch.records():
            last[record.key] = record.value
    return [row for row in last.values() if row and row["instance"]]


def test_an_event_becomes_a_command(store: es.Store) -> None:
    asked(store, "b")
    assert TRANSFERS.run(store, until_caught_up=True) == 1
    assert balances(store, "a", "b") == [70, 30]
    assert TRANSFERS.run(store, until_caught_up=True) == 0


def test_a_command_that_is_refused_is_reacted_to(store: es.Store) -> None:
    store.handle(ACCOUNT, "c", Close(), at=NOON)
    asked(store, "c")
    TRANSFERS.run(store, until_caught_up=True)
    assert balances(store, "a", "c") == [100, 0]
    assert sent(store) == [
        ("account/c", Arrive("a>c", 30)), ("account/a", GiveBack("a>c", 30)),
    ]  # fmt: skip


def test_a_refusal_of_somebody_elses_command_is_not_reacted_to(store: es.Store) -> None:
    store.handle(ACCOUNT, "c", Close(), at=NOON)
    store.handle(ACCOUNT, "c", Arrive("a>c", 9), id="transfers/a>c/1.0", at=NOON)
    TRANSFERS.run(store, until_caught_up=True)
    assert sent(store) == []


def test_a_command_says_who_caused_it_and_why(store: es.Store) -> None:
    asked(store, "b", id="ask-1", metadata={"who": "mia"})
    TRANSFERS.run(store, until_caught_up=True)
    (change,) = store.history(ACCOUNT, "b")
    assert change.event.metadata == {"who": "mia", "process": "transfers", "cause": "ask-1:0"}
    assert change.event.at == NOON


def test_a_command_is_not_earlier_than_what_is_in_the_log(store: es.Store) -> None:
    asked(store, "b")
    store.handle(ACCOUNT, "c", Deposit(1), at=NOON + HOUR / 2)
    TRANSFERS.run(store, until_caught_up=True)
    (change,) = store.history(ACCOUNT, "b")
    assert change.event.at == NOON + HOUR / 2


def stuck() -> es.Process[t.Transfer]:
    """A process whose first command is never sent."""

    def react(state: t.Transfer, event: Any, id: str) -> Any:
        if isinstance(event, t.Asked):
            return es.timeout("slow", after=t.PATIENCE)
        return t.react(state, event, id)

    return t.transfers(react=react)


@pytest.mark.parametrize(("later", "fired"), [(timedelta(minutes=59), 0), (HOUR, 1)])
def test_a_time_out_fires_when_the_time_of_the_events_has_come(
    store: es.Store, later: timedelta, fired: int
) -> None:
    asked(store, "b")
    assert stuck().run(store, until_caught_up=True) == 0
    store.handle(ACCOUNT, "c", Deposit(1), at=NOON + later)
    assert stuck().run(store, until_caught_up=True) == fired
    assert sent(store) == [("account/a", Remind("a>b"))] * fired
    assert stuck().run(store, until_caught_up=True) == 0


def test_a_time_out_waits_on_an_idle_log_until_its_time_is_moved(store: es.Store) -> None:
    asked(store, "b")
    assert stuck().run(store, until_caught_up=True) == 0
    store.log.advance("bank.events", NOON + HOUR)
    assert stuck().run(store, until_caught_up=True) == 1


def test_a_time_out_fires_before_the_events_that_make_it_due(store: es.Store) -> None:
    asked(store, "b")
    store.handle(ACCOUNT, "b", Arrive("a>b", 30), at=NOON + HOUR)
    assert stuck().run(store, until_caught_up=True) == 1


def test_a_time_out_that_was_cancelled_does_not_fire(store: es.Store) -> None:
    asked(store, "b")
    store.handle(ACCOUNT, "b", Arrive("a>b", 30), at=NOON)
    store.handle(ACCOUNT, "c", Deposit(1), at=NOON + 9 * HOUR)
    assert stuck().run(store, until_caught_up=True) == 0


def test_a_time_out_may_set_the_next_one(store: es.Store) -> None:
    def react(state: t.Transfer, event: Any, id: str) -> Any:
        if isinstance(event, t.GivenBack | t.Arrived):
            return ()
        again = es.timeout("slow", after=HOUR)
        return again if isinstance(event, t.Asked) else [es.send(ACCOUNT, "a", Remind(id)), again]

    asked(store, "b")
    store.handle(ACCOUNT, "c", Deposit(1), at=NOON + 3 * HOUR)
    assert t.transfers(react=react).run(store, until_caught_up=True) == 3


def test_a_time_out_cannot_set_one_that_is_not_later(store: es.Store) -> None:
    def react(state: t.Transfer, event: Any, id: str) -> Any:
        return es.timeout("slow", at=NOON + HOUR)

    asked(store, "b")
    store.handle(ACCOUNT, "c", Deposit(1), at=NOON + 3 * HOUR)
    with pytest.raises(ProcessFailed, match="time-out 'slow' of 'a>b'"):
        t.transfers(react=react).run(store, until_caught_up=True)


def test_an_instance_in_its_initial_state_is_not_stored(store: es.Store) -> None:
    asked(store, "b")
    runner = TRANSFERS.runner(store)
    runner.step()
    assert [row["instance"] for row in stored(store.log)] == ["a>b"]
    runner.catch_up()
    assert stored(store.log) == []


def test_a_failing_function_stops_at_its_event_and_skips_nothing(store: es.Store) -> None:
    broken = True

    def react(state: t.Transfer, event: Any, id: str) -> Any:
        if broken and id == "a>c":
            raise ValueError("no such bank")
        return t.react(state, event, id)

    process = t.transfers(react=react)
    for target in "bcd":
        asked(store, target, id=f"ask-{target}")
    for _ in range(2):
        with pytest.raises(ProcessFailed, match=r"event 'ask-c:0'.*no such bank") as caught:
            process.run(store, until_caught_up=True)
        assert caught.value.details["cause"] == "ask-c:0"
        assert balances(store, "a", "b", "c", "d") == [10, 30, 0, 0]
    broken = False
    process.run(store, until_caught_up=True)
    assert balances(store, "a", "b", "c", "d") == [10, 30, 30, 30]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"react": lambda state, event, id: None}, "react of 'transfers' returned None"),
        ({"evolve": lambda state, event: None}, "evolve of 'transfers' returned None"),
        ({"key": lambda stored: 7}, "key of 'transfers' returned 7"),
        (
            {"react": lambda state, event, id: es.send(ACCOUNT, "a", "pay")},
            "'pay' is not a command",
        ),
    ],
)
def test_a_function_that_returns_nonsense_is_named(
    store: es.Store, changes: Any, said: str
) -> None:
    asked(store, "b")
    with pytest.raises(ProcessFailed, match=said):
        t.transfers(**changes).run(store, until_caught_up=True)


def test_a_decide_that_fails_names_the_command_and_it_is_sent_again(
    log: Log, store: es.Store
) -> None:
    def decide(state: t.Account, command: Any) -> Any:
        if isinstance(command, Arrive):
            raise ValueError("no rate")
        return t.decide(state, command)

    asked(store, "b")
    broken = es.aggregate(
        "account", initial=t.Account(), decide=decide, evolve=t.evolve,
        events=t.EVENTS.values(), commands=ACCOUNT.commands,
    )  # fmt: skip

    def react(state: t.Transfer, event: Any, id: str) -> Any:
        return es.send(broken, "b", Arrive(id, 30)) if isinstance(event, t.Asked) else ()

    failing = pytest.raises(ProcessFailed, match=r"transfers/a>b/2.0.*no rate")
    with es.Domain("bank", [broken]).open(log) as other, failing:
        t.transfers(react=react).run(other, until_caught_up=True)
    assert TRANSFERS.run(store, until_caught_up=True) == 1
    assert balances(store, "a", "b") == [70, 30]


def test_a_process_that_runs_twice_at_once_has_one_effect(store: es.Store) -> None:
    first, second = TRANSFERS.runner(store), TRANSFERS.runner(store)
    for target in "bc":
        asked(store, target)
        while first.step() | second.step():
            pass
    assert balances(store, "a", "b", "c") == [40, 30, 30]
    assert len(sent(store)) == 2
    assert sum(len(batch) for batch in store.log.read("bank.transfers.sent")) == 2


@pytest.mark.parametrize(("start", "wanted"), [(LATEST, 0), (Commit(2), 1)])
def test_a_new_process_may_start_later_than_at_the_first_event(
    store: es.Store, start: Any, wanted: int
) -> None:
    asked(store, "b")  # commit 2
    asked(store, "c")
    assert TRANSFERS.run(store, until_caught_up=True, start=start) == wanted
    assert TRANSFERS.run(store, until_caught_up=True) == 0
    asked(store, "d")
    assert TRANSFERS.run(store, until_caught_up=True, start=start) == 1


def test_a_process_without_a_state(store: es.Store) -> None:
    def remind(state: None, event: Any, id: str) -> Any:
        return es.send(ACCOUNT, id, Remind("done"))

    notices = es.process(
        "notices", events=[t.EVENTS["asked"]], key=lambda stored: stored.aggregate_id, react=remind
    )
    asked(store, "b")
    asked(store, "c")
    assert notices.run(store, until_caught_up=True) == 2
    assert sent(store) == [("account/a", Remind("done"))] * 2
    assert stored(store.log, "bank.notices.states") == []


def test_a_process_goes_on_until_it_is_stopped(store: es.Store) -> None:
    asks = iter(["b", "c"])

    def stop() -> bool:
        target = next(asks, None)
        if target is not None:
            asked(store, target)
        return target is None and balances(store, "b", "c") == [30, 30]

    assert TRANSFERS.run(store, stop=stop) == 2


@dataclass(frozen=True)
class Newer:
    source: str = ""
    cents: int = 0


def test_a_state_of_another_version_is_upgraded_or_refused(store: es.Store) -> None:
    def newer(upgrade: Any) -> es.Process[Newer]:
        return es.process(
            "transfers", initial=Newer(), events=TRANSFERS.events, key=t.transfer_of,
            evolve=lambda state, event: Newer(state.source, state.cents + 1),
            react=lambda state, event, id: es.send(ACCOUNT, state.source, Remind(str(state.cents))),
            state_version=2, upgrade=upgrade,
        )  # fmt: skip

    asked(store, "b")
    TRANSFERS.runner(store).step()
    with pytest.raises(ProcessFailed, match="version 1, and this code has 2"):
        newer(None).run(store, until_caught_up=True)
    made = newer(lambda data, version: {"source": data["source"], "cents": data["amount"] * 100})
    made.run(store, until_caught_up=True)
    assert sent(store)[-1] == ("account/a", Remind("3001"))
    asked(store, "b")
    with pytest.raises(ProcessFailed, match="version 2, and this code has 1"):
        t.transfers(upgrade=lambda data, version: data).run(store, until_caught_up=True)


def test_a_process_needs_recorded_commands(log: Log) -> None:
    failing = pytest.raises(InvalidDomain, match="record")
    with t.bank(record_commands=False).open(log) as store, failing:
        TRANSFERS.run(store, until_caught_up=True)


def test_a_process_reads_events_of_its_domain(store: es.Store) -> None:
    other: es.Process[None] = es.process(
        "other", events=[es.event("asked", t.Asked, tags=lambda event: [])], key=t.transfer_of,
        react=lambda state, event, id: (),
    )  # fmt: skip
    with pytest.raises(InvalidDomain, match="no event of the domain"):
        other.run(store, until_caught_up=True)


@pytest.mark.parametrize(
    "given", [{"initial": t.Transfer()}, {"evolve": t.begun}, {"events": []}, {"react": 1}]
)
def test_a_declaration_is_checked(given: Any) -> None:
    with pytest.raises(InvalidDomain):
        es.process(
            "transfers",
            **{"events": TRANSFERS.events, "key": t.transfer_of, "react": t.react, **given},
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: es.timeout("slow"),
        lambda: es.timeout("slow", after=timedelta(0)),
        lambda: es.timeout("slow", after=HOUR, at=NOON),
        lambda: es.timeout("slow", at=datetime(2026, 1, 1)),
        lambda: es.timeout("", after=HOUR),
        lambda: es.send(ACCOUNT, "", Close()),
        lambda: es.send("account", "a", Close()),  # type: ignore[arg-type]
        lambda: es.send_across(ACCOUNT, Close()),  # type: ignore[arg-type]
    ],
)
def test_an_action_is_checked(make: Any) -> None:
    with pytest.raises(InvalidDomain):
        make()
