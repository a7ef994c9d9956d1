"""The joins of the simulation against joins that buffer and evict rows one by one."""

from __future__ import annotations

import pytest

from headrace.clock import to_micros
from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.frame import Lanes
from headrace.studio.learn.joins import SIMULATION, history
from headrace.studio.learn.shop import arrivals

SECOND = 1_000_000
SETUPS = pytest.mark.parametrize(
    ("seed", "bound", "delay", "changes"),
    [(1, 20, 5, 8), (2, 60, 0, 24), (3, 2, 20, 0), (4, 20, 0, 12), (5, 10, 3, 5)],
)


class Buffers:
    """A join of orders and payments that holds rows, matches a row as it comes, and evicts."""

    def __init__(self, bound: int, delay: int) -> None:
        self.bound, self.delay = bound * SECOND, delay * SECOND
        self.frontier: dict[str, int] = {}
        self.orders: dict[int, int] = {}
        self.payments: dict[int, int] = {}
        self.paid: set[int] = set()
        self.pairs = self.unpaid = self.late = self.evicted = 0

    def take(self, topic: str, number: int, at: int) -> None:
        frontier = self.frontier.get(topic)
        self.frontier[topic] = at if frontier is None else max(frontier, at)
        if frontier is not None and at <= frontier - self.delay:
            self.late += 1
        else:
            mine, theirs = self.orders, self.payments
            if topic == "payments":
                mine, theirs = theirs, mine
            mine[number] = at
            if number in theirs and 0 <= self.payments[number] - self.orders[number] <= self.bound:
                self.pairs += 1
                self.paid.add(number)
        self.evict()

    def evict(self) -> None:
        if "payments" in self.frontier:
            closed = self.frontier["payments"] - self.delay
            for number in [n for n, at in self.orders.items() if at + self.bound <= closed]:
                del self.orders[number]
                self.evicted += 1
                self.unpaid += number not in self.paid
        if "orders" in self.frontier:
            closed = self.frontier["orders"] - self.delay
            for number in [n for n, at in self.payments.items() if at <= closed]:
                del self.payments[number]
                self.evicted += 1


@SETUPS
def test_the_stream_join_finds_and_holds_what_a_join_with_buffers_does(
    seed: int, bound: int, delay: int, changes: int
) -> None:
    buffers = Buffers(bound, delay)
    for step, arrived in enumerate(arrivals(seed, changes), 1):
        for event in arrived.events:
            if arrived.topic != "users":
                buffers.take(arrived.topic, event.row["id"], to_micros(event.row["at"]))
        frame = simulate("joins", step=step, seed=seed, bound=bound, delay=delay, changes=changes)
        assert (
            frame.number("pairs"),
            frame.number("unpaid"),
            frame.number("late"),
            frame.number("held by stream–stream"),
            frame.number("evicted"),
        ) == (
            buffers.pairs,
            buffers.unpaid,
            buffers.late,
            len(buffers.orders) + len(buffers.payments),
            buffers.evicted,
        )


@SETUPS
def test_an_order_keeps_its_tier_in_the_lookup_and_not_in_the_joined_tables(
    seed: int, bound: int, delay: int, changes: int
) -> None:
    values = {"bound": bound, "delay": delay, "changes": changes}
    setup = SIMULATION.setup({"seed": str(seed), **{k: str(v) for k, v in values.items()}})
    everything = arrivals(seed, changes)
    users: list[tuple[int, str, str]] = []
    placed = 0
    tables = history(setup)
    for step, arrived in enumerate(everything, 1):
        placed += arrived.topic == "orders"
        if arrived.topic == "users":
            users += [
                (to_micros(event.row["since"]), event.row["name"], event.row["tier"])
                for event in arrived.events
            ]
        newest = {name: tier for _, name, tier in sorted(users)}
        orders = {
            event.row["id"]: event.row["user"]
            for each in everything[:step]
            for event in each.events
            if each.topic == "orders"
        }
        assert tables[step].now == {number: newest[name] for number, name in orders.items()}
        frame = simulate("joins", step=step, seed=seed, **values)
        assert frame.number("held by stream–table") == len(users)
        assert frame.number("held by table–table") == placed + len(newest)
        assert frame.number("replaced") == len(users) - len(newest)
        assert frame.number("orders that wait") == placed - len(tables[step].then)
        moved = [n for n, tier in tables[step].then.items() if tier != tables[step].now[n]]
        assert frame.number("tiers that differ") == len(moved)
        # What the lookup has said stays.
        assert tables[step - 1].then.items() <= tables[step].then.items()


@SETUPS
def test_the_lookup_gives_the_tier_of_the_time_of_the_order_by_the_changes_known_when_it_is_ready(
    seed: int, bound: int, delay: int, changes: int
) -> None:
    values = {"seed": seed, "bound": bound, "delay": delay, "changes": changes}
    found = history(SIMULATION.setup({name: str(value) for name, value in values.items()}))
    users: list[tuple[int, str, str]] = []
    waiting: dict[int, tuple[int, str]] = {}
    latest = 0
    then: dict[int, str] = {}
    for step, arrived in enumerate(arrivals(seed, changes), 1):
        for event in arrived.events:
            if arrived.topic == "users":
                row = event.row
                users.append((to_micros(row["since"]), row["name"], row["tier"]))
            elif arrived.topic == "orders":
                at = to_micros(event.row["at"])
                waiting[event.row["id"]] = at, event.row["user"]
                latest = max(latest, at)
        ready = max(max(users)[0], latest - delay * SECOND)
        for number, (at, who) in list(waiting.items()):
            if at <= ready:
                del waiting[number]
                then[number] = max((s, tier) for s, name, tier in users if name == who and s <= at)[
                    1
                ]
        assert found[step].then == then


def test_the_buffers_show_each_row_as_held_evicted_or_late() -> None:
    frame = simulate("joins", step=43, delay=0)
    (lanes,) = (panel for panel in frame if isinstance(panel, Lanes))
    assert [lane.note for lane in lanes.lanes[:2]] == [
        f"{len(history(SIMULATION.setup({'delay': '0'}))[43].orders)} held",
        f"{len(history(SIMULATION.setup({'delay': '0'}))[43].payments)} held",
    ]
    shown = [cell.kind for lane in lanes.lanes[:2] for cell in lane.cells]
    assert set(shown) <= {"a", "muted", "late"}
    assert shown.count("a") == frame.number("held by stream–stream")
