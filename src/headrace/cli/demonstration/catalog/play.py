"""The play of the catalog demo: a shop is open, a follower is killed, products are deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.application.run import Run, StepProgress
from headrace.application.verify.result import Verified, keep
from headrace.application.verify.verify import Verification
from headrace.cdc.attachment import Attachment
from headrace.cdc.opening import open_source
from headrace.cdc.state import read_state
from headrace.cdc.undo.changes import Range, chosen_topics, read_changes
from headrace.cdc.undo.script import write_script
from headrace.cli.asked import Asked
from headrace.cli.demonstration.catalog.followers import CAPTURE, STORES, Followers
from headrace.cli.demonstration.catalog.shop import PREFIX, Shop
from headrace.clock import SECOND, SystemClock
from headrace.errors import StoreError, UnknownTopic
from headrace.log import Log, Time
from headrace.pipeline.app import App
from headrace.runtime.session import SparkSettings
from headrace.store.status import StoreStatus, statuses

KILLED = "search"
PRODUCTS = "shop.main.products"
_LOOK = SECOND // 5
_KEPT = 60
"""Looks at the lag that the screen draws."""
_SALE = 2_000


@dataclass(frozen=True)
class Act:
    """An act of the play: what happens, and what came of it."""

    text: str
    result: str = ""
    over: bool = False


@dataclass(frozen=True)
class Following:
    """One store: its lag in changes now and in the last looks, and its delay in seconds."""

    state: str
    lag: int = 0
    behind: float = 0.0
    applied: int = 0
    looks: tuple[int, ...] = ()
    most: int = 0


@dataclass(frozen=True)
class Scene:
    """The whole demo at one moment."""

    url: str
    seconds: float
    writes: int
    capture_lag: int | None
    steps: tuple[StepProgress, ...]
    stores: Mapping[str, Following]
    acts: tuple[Act, ...]


@dataclass(frozen=True)
class Outage:
    """The kill: seconds without the follower, changes it missed, and seconds to catch up."""

    seconds: float
    missed: int
    cheaper: int
    """Products whose price changed meanwhile, at once."""
    caught_up: float
    others: int
    """The highest lag of the other stores meanwhile."""


@dataclass(frozen=True)
class Accident:
    """The delete: rows, and the seconds until no store had them, and until all had them again."""

    deleted: int
    gone: float
    back: float


class Play:
    """A run of the demo. A screen may ask for the scene at any time, from another thread."""

    def __init__(
        self, log: Log, app: App, shop: Shop, attachment: Attachment, followers: Followers,
        *, reference: str, pause: float,
    ) -> None:  # fmt: skip
        self._log = log
        self._app = app
        self._shop = shop
        self._attachment = attachment
        self._followers = followers
        self._reference = reference
        self._pause = round(pause * SECOND)
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._asked = Asked()
        self._running: Run | None = None
        self._stores = {name: Following("new") for name in STORES}
        self._acts: list[Act] = []
        self._steps: tuple[StepProgress, ...] = ()
        self._capture_lag: int | None = None
        self.outage: Outage | None = None
        self.accident: Accident | None = None
        self.verified: list[Verified] = []

    @property
    def seconds(self) -> float:
        return (self._clock.monotonic() - self._began) / SECOND

    @property
    def steps(self) -> tuple[StepProgress, ...]:
        return self._steps

    def scene(self) -> Scene:
        """The current scene."""
        return Scene(
            self._log.url,
            self.seconds,
            self._shop.writes,
            self._capture_lag,
            self._steps,
            dict(self._stores),
            tuple(self._acts),
        )

    def run(self) -> None:
        """Run all acts. Ctrl-C leaves out what is left, and the stores catch up."""
        with self._followers, contextlib.closing(self._shop):
            with contextlib.ExitStack() as stack:
                self._open(stack)
                for act in (self._trade, self._kill, self._delete, self._recover):
                    if not self._asked.signal:
                        act()
                self._close()
            # Now that the run is closed, each change of a view is in its changelog.
            self._prove()

    # Acts

    def _open(self, stack: contextlib.ExitStack) -> None:
        with self._act("the stores fill from a snapshot of the database") as tell:
            for name in (CAPTURE, *STORES):
                self._followers.start(name)
            settings = SparkSettings(brief=True)
            self._running = stack.enter_context(
                Run(self._app, self._log.url, settings=settings, stores=False)
            )
            stack.callback(self._let_go)
            stack.enter_context(self._asked.listening())
            self._until(self._all_caught_up)
            tell(f"{self._shop.products:,} products in each")

    def _trade(self) -> None:
        with self._act("customers buy, and prices change") as tell:
            self._shop.begin()
            self._shop.trade()
            self._wait(2 * self._pause)
            tell("in the database alone; the stores follow")

    def _kill(self) -> None:
        with self._act(f"kill -9 of the follower of {KILLED}, and a sale meanwhile") as tell:
            self._followers.kill(KILLED)
            began, end = self._clock.monotonic(), self._end_of_changes()
            cheaper = self._shop.run(
                "UPDATE products SET price = round(price * 0.8, 2) WHERE sku IN "
                f"(SELECT sku FROM products ORDER BY sku LIMIT {_SALE})"
            )
            self._until(lambda: self._end_of_changes() >= end + cheaper)
            others = [0]
            self._wait(self._pause, lambda: others.append(self._most_behind_but_killed()))
            missed = self._stores[KILLED].lag
            tell(f"{missed:,} changes behind; the others at most {max(others):,}")
            target = self._end_of_changes()
            down = self._since(began)
        with self._act(f"{KILLED} is started again") as tell:
            began = self._clock.monotonic()
            self._followers.start(KILLED)
            self._until(lambda: self._has_reached(KILLED, target))
            caught_up = self._since(began)
            self.outage = Outage(down, missed, cheaper, caught_up, max(others))
            tell(f"it has caught up after {caught_up:.1f} s, start of its process included")
            self._wait(self._pause // 2)

    def _delete(self) -> None:
        count = min(10_000, (self._shop.products + 1) // 2)
        with self._act(f"somebody deletes {count:,} products by mistake") as tell:
            self._shop.pause()
            self._until(self._all_caught_up)
            self._from = self._clock.now()
            deleted = self._shop.run(
                f"DELETE FROM products WHERE sku IN (SELECT sku FROM products LIMIT {count})"
            )
            began = self._clock.monotonic()
            self._until(self._all_caught_up)
            self._to = self._clock.now()
            self.accident = Accident(deleted, self._since(began), 0.0)
            self._shop.trade(prices=False)
            tell(f"they are gone from every store after {self.accident.gone:.1f} s")
        with self._act("headrace verify: does every store have what the database has?") as tell:
            tell(self._verify("products"))

    def _recover(self) -> None:
        assert self.accident is not None
        with self._act("headrace cdc undo writes SQL, and a person runs it") as tell:
            wanted = Range.between(Time(self._from), Time(self._to))
            topics = chosen_topics(self._log, PREFIX, ["products"])
            changes = read_changes(self._log, topics, wanted, partial=False)
            self._shop.run_script("\n".join(write_script(changes, "of the accident")))
            began = self._clock.monotonic()
            self._shop.pause()
            self._until(self._all_caught_up)
            self.accident = replace(self.accident, back=self._since(began))
            self._shop.trade()
            tell(f"they are back in every store after {self.accident.back:.1f} s")
            self._wait(self._pause)

    def _close(self) -> None:
        with self._act("the shop closes") as tell:
            self._shop.close()
            self._shop.check()
            self._until(self._all_caught_up, whatever=True)
            tell(f"{self._shop.orders:,} orders")

    def _prove(self) -> None:
        with self._act("headrace verify, of everything") as tell:
            self._until(self._stores_caught_up, whatever=True)
            tell(self._verify(*self._app.views))

    def _let_go(self) -> None:
        self._running = None

    # What acts are made of

    @contextlib.contextmanager
    def _act(self, text: str) -> Iterator[Callable[[str], None]]:
        self._acts.append(Act(text))
        place = len(self._acts) - 1

        def tell(result: str) -> None:
            self._acts[place] = replace(self._acts[place], result=result)

        yield tell
        self._acts[place] = replace(self._acts[place], over=True)

    def _until(self, done: Callable[[], bool], *, whatever: bool = False) -> None:
        """Look until something is done, or the user has asked for an end."""
        while not done() and (whatever or not self._asked.signal):
            self._clock.sleep(_LOOK)
            self._look()

    def _wait(self, micros: int, seen: Callable[[], None] = lambda: None) -> None:
        end = self._clock.monotonic() + micros
        while self._clock.monotonic() < end and not self._asked.signal:
            self._clock.sleep(_LOOK)
            self._look()
            seen()

    def _look(self) -> None:
        """Look at everything once."""
        self._followers.check()
        self._shop.check()
        if self._running is not None:
            self._running.wait(0)
            self._steps = tuple(self._running.progress())
        self._capture_lag = self._lag_of_capture()
        found = statuses(self._log, self._clock.now())
        for each in found:
            if each.error and not each.retryable:
                raise StoreError(f"{each.store}: {each.error}", hint=each.hint)
        for name in STORES:
            mine = [each for each in found if self._name_of(each) == name]
            self._stores[name] = self._following(name, mine)

    def _following(self, name: str, found: list[StoreStatus]) -> Following:
        before = self._stores[name]
        if not found:
            return before
        lag = sum(each.lag or 0 for each in found)
        state = found[0].state if self._followers.is_running(name) else "killed"
        return Following(
            state,
            lag,
            max(each.behind or 0 for each in found) / SECOND,
            sum(each.applied for each in found),
            (*before.looks, lag)[-_KEPT:],
            max(before.most, lag),
        )

    def _name_of(self, status: StoreStatus) -> str:
        kind = status.store.partition(":")[0]
        return {kind: name for name, kind in STORES.items()}.get(kind, "cache")

    def _lag_of_capture(self) -> int | None:
        """Changes in the database that are not in the log yet."""
        try:
            reached = read_state(self._log, PREFIX).reached
        except UnknownTopic:  # it has not begun
            return None
        with open_source(self._attachment) as source:
            return source.state(reached.position).lag

    def _all_caught_up(self) -> bool:
        """True if everything in the database is in every store, while nobody writes.

        What a step has stored may be on its way to a changelog for a moment, so it looks twice.
        """
        for _ in range(2):
            self._look()
            lags = [self._capture_lag, *(step.lag for step in self._steps)]
            if any(lags) or None in lags or not self._stores_caught_up():
                return False
            self._clock.sleep(_LOOK)
        return True

    def _stores_caught_up(self) -> bool:
        found = statuses(self._log, self._clock.now())
        wanted = sum(len(view.stores) for view in self._app.views.values())
        return len(found) == wanted and all(each.lag == 0 for each in found)

    def _most_behind_but_killed(self) -> int:
        return max(each.lag for name, each in self._stores.items() if name != KILLED)

    def _end_of_changes(self) -> int:
        return self._log.topic(f"{self._app.name}.products.changes").partitions[0].end

    def _has_reached(self, name: str, offset: int) -> bool:
        found = [s for s in statuses(self._log, 0) if self._name_of(s) == name]
        return all(s.position is not None and s.position.offset >= offset for s in found)

    def _verify(self, *views: str) -> str:
        """Verify some views; return the result in words."""
        with Verification(self._app, self._log) as verification:
            for view in views:
                found = verification.verify(view)
                keep(self._log.home, found, self._reference)
                self.verified.append(found)
                if not found.proven:
                    return f"{found.differences:,} differences in {view}"
        hops = sum(len(found.hops) for found in self.verified[-len(views) :])
        return f"yes: {hops} hops compared, 0 differences"

    def _since(self, moment: int) -> float:
        return (self._clock.monotonic() - moment) / SECOND
