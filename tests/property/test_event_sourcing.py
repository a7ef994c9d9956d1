"""Any commands by any writers keep the rules, whichever comes between reading and committing."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
import headrace.eventsourcing as es
from headrace.errors import Contended
from headrace.log import check_log
from headrace.log.file.log import FileLog
from tests import bank as b
from tests.bank import Account, Deposit, Empty, Open, OpenOnly, Withdraw
from tests.property.scripts import quickly
from tests.spark import shared

IDS = ("a", "b")
WRITERS = 3

COMMANDS = st.one_of(
    st.just(Open("mia")),
    st.builds(Deposit, st.integers(1, 9)),
    st.builds(Withdraw, st.integers(1, 9)),
    st.just(Empty()),
    st.builds(OpenOnly, st.sampled_from(["mia", "noa"]), st.sampled_from(["c", "d"])),
)

STEPS = st.lists(
    st.tuples(
        st.integers(0, WRITERS - 1),
        st.sampled_from(IDS),
        COMMANDS,
        st.sampled_from([None, None, "1", "2", "3"]),
    ),
    max_size=14,
)
"""Writers, accounts, commands and their ids, which may be repeated."""


class Writers:
    """Writers that know what they have seen, and may come between another's steps."""

    def __init__(self, folder: Path, steps: list[Any], interrupting: list[Any]) -> None:
        self._stack = ExitStack()
        self.log = self._stack.enter_context(FileLog(folder))
        self.account = b.account(decide=self._decide)
        self.decision = es.decision(
            "one-account", initial=b.Taken(), evolve=b.ONE_ACCOUNT.evolve,
            decide=self._decide_only, matches=b.ONE_ACCOUNT.matches,
            commands=b.ONE_ACCOUNT.commands,
        )  # fmt: skip
        domain = es.Domain("bank", [self.account], decisions=[self.decision])
        self.stores = [
            self._stack.enter_context(domain.open(self.log, acks="written")) for _ in range(WRITERS)
        ]
        self._steps = iter(steps)
        self._interrupting = iter(interrupting)
        self.answers: dict[str, set[Any]] = {}
        self.used: dict[str, Any] = {}

    def run(self, only: int | None = None) -> None:
        """Take so many steps, and all that come between them; without a number take all."""
        for _ in range(only) if only is not None else itertools.count():
            if not self.step():
                break

    def step(self) -> bool:
        """Let a writer handle its command."""
        found = next(self._steps, None)
        if found is None:
            return False
        writer, account, command, id = found
        store = self.stores[writer]
        if id is not None and self.used.setdefault(id, (account, command)) != (account, command):
            id = None  # another command has it
        try:
            if isinstance(command, OpenOnly):
                answer = store.decide_across(self.decision, command, id=id)
            else:
                answer = store.handle(self.account, account, command, id=id)
        except Contended:
            return True
        if id is not None:
            self.answers.setdefault(id, set()).add((type(answer), answer.commit, answer.version))
        return True

    def close(self) -> None:
        self._stack.close()

    def _decide(self, state: Account, command: Any) -> Any:
        if next(self._interrupting, False):
            self.step()
        return b.decide(state, command)

    def _decide_only(self, state: b.Taken, command: OpenOnly) -> Any:
        if next(self._interrupting, False):
            self.step()
        return es.to(self.account, command.account, b.Opened(command.owner)) if (
            not state.accounts
        ) else es.refuse("taken")  # fmt: skip


def folded(store: es.Store, key: str) -> Iterator[tuple[int, Account]]:
    """Each version of an account and its state, from the first event on."""
    state = Account()
    for stored in store.events([[[f"aggregate:{key}"]]]):
        state = b.evolve(state, stored.event)
        yield stored.version, state


@settings(max_examples=40)
@given(steps=STEPS, interrupting=st.lists(st.booleans(), max_size=20))
def test_the_rules_hold_whatever_comes_between(steps: list[Any], interrupting: list[Any]) -> None:
    folder = Path(tempfile.mkdtemp())
    writers = Writers(folder / "log", steps, interrupting)
    try:
        writers.run()
        _check(writers)
        assert check_log(folder / "log", lambda *_: None) == []
    finally:
        writers.close()
        shutil.rmtree(folder)


def balances(domain: es.Domain) -> hr.App:
    """The read model: what the events of each account add up to."""
    app = hr.App("bank")
    signed = "CASE type WHEN 'money-deposited' THEN amount WHEN 'money-withdrawn' THEN -amount END"
    movements = hr.derive(domain.stream(app), change=f"coalesce({signed}, 0)")
    at_once = hr.Lateness(delay=timedelta(0), grace=timedelta(0))
    found = hr.aggregate(
        movements, by="aggregate", window=hr.running(hr.FOREVER), lateness=at_once,
        balance=hr.sum("change"), version=hr.count(),
    )  # fmt: skip
    app.view("balances", found)
    return app


@quickly(1)
@given(steps=STEPS, interrupting=st.lists(st.booleans(), max_size=20), early=st.integers(0, 14))
def test_a_read_model_that_is_caught_up_has_what_every_state_adds_up_to(
    steps: list[Any], interrupting: list[Any], early: int
) -> None:
    """The state is the fold of the events, the snapshot with its tail, and the row of the view."""
    with tempfile.TemporaryDirectory() as folder:
        first = [(0, "a", Open("mia"), None), (1, "a", Deposit(3), None)]
        writers = Writers(Path(folder) / "log", [*first, *steps], interrupting)
        try:
            if early:
                writers.run(len(first) + early)
                _check_read_model(writers)
            writers.run()
            _check(writers)
            _check_read_model(writers)
        finally:
            writers.close()


def _check_read_model(writers: Writers) -> None:
    store = writers.stores[0]
    (progress,) = hr.run(balances(store.domain), writers.log, spark=shared())
    with hr.open_views(writers.log.home) as views:
        rows = {row["aggregate"]: row for row in views.rows("balances")}
    states = {key: store.load(writers.account, key.partition("/")[2]) for key in rows}
    assert {key: (row["version"], row["balance"]) for key, row in rows.items()} == {
        key: (loaded.version, loaded.state.balance) for key, loaded in states.items()
    }
    assert progress.law.counted == sum(loaded.version for loaded in states.values())
    assert progress.law.holds


def _check(writers: Writers) -> None:
    store, account = writers.stores[0], writers.account
    for id in (*IDS, "c", "d"):
        states = list(folded(store, f"account/{id}"))
        assert [version for version, _ in states] == list(range(1, len(states) + 1))
        assert all(state.balance >= 0 for _, state in states), "an account is overdrawn"
        last = states[-1] if states else (0, Account())
        with store.domain.open(writers.log, acks="written") as fresh:
            loaded = [s.load(account, id) for s in (*writers.stores, fresh)]
        assert {(found.version, found.state) for found in loaded} == {last}
        for version, state in states:
            assert store.load(account, id, version=version).state == state
    for id, answers in writers.answers.items():
        assert len(answers) == 1, f"command {id} has two answers: {answers}"
    recorded = [c for batch in [writers.log.read("bank.commands")] for c in batch]
    ids = Counter(id for batch in recorded for id in batch.data.column("id").to_pylist())
    assert max(ids.values(), default=1) == 1, "a command was decided twice"
    _check_owners(store)


def _check_owners(store: es.Store) -> None:
    """A decision never opens a second account for an owner."""
    seen: set[str] = set()
    for stored in store.events([es.match(types=["account-opened"])]):
        by_decision = not stored.aggregate.endswith(("/a", "/b"))
        assert not (by_decision and stored.event.owner in seen), "an owner has two accounts"
        seen.add(stored.event.owner)
