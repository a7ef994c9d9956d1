"""Event sourcing: an account whose balance is nothing but its events."""

from __future__ import annotations

from headrace.studio.learn.account import BACK, SENDING, STEPS, Fact, Moment, history
from headrace.studio.learn.frame import (
    Arrow,
    Axis,
    Band,
    Box,
    Cell,
    Flow,
    Frame,
    Grid,
    Lane,
    Lanes,
    Line,
    Number,
    Plot,
    Point,
    Pointer,
)
from headrace.studio.learn.simulation import Action, Prompt, Setup, Simulation, Slider
from headrace.wording import many

_SHOWN = 16
"""Events that the lanes show."""
_ROWS = 8


def frame(setup: Setup, step: int) -> Frame:
    """The account after so many seconds."""
    now = history(setup)[step]
    panels = (_flow(now, setup), _lanes(now), _plot(now, setup, step), _grid(now))
    return Frame(step, STEPS, _caption(now, step), _numbers(now, setup), panels)


def _numbers(now: Moment, setup: Setup) -> tuple[Number, ...]:
    then = now.by_time or (0, 0)
    known = now.by_commit or (0, 0)
    differ = int(now.state != (now.facts[-1].after if now.facts else 0))
    return (
        Number("balance", now.state, kind="good"),
        Number("events", now.version, hint="In the log, for good"),
        Number("refused", now.refused, kind="bad" if now.refused else "", hint="No event came"),
        Number("replayed from scratch", now.scratch, "events"),
        Number("since the snapshot", now.tail, "events", hint="That loading folds"),
        Number(
            "replays that differ",
            differ,
            kind="bad" if differ else "good",
            hint="All events against the snapshot and the rest",
        ),
        Number("balance then", then[0], hint="By the events up to the chosen second"),
        Number(
            "as known then",
            known[0],
            kind="warn" if known != then else "",
            hint="By the commits up to the chosen second",
        ),
        Number("sent twice", now.repeated, hint="Commands whose id had come before"),
        Number("decided again", now.again, hint="Since another commit came first"),
        Number("what if: different", len(now.would), hint="With a credit: nothing is written"),
    )


def _caption(now: Moment, step: int) -> str:
    if step == 0:
        return "The account has no events, so its balance is 0. Press play, or step forward."
    if not now.said:
        return f"No command comes. {now.version} events are the truth; the balance follows."
    return " ".join(now.said)


def _flow(now: Moment, setup: Setup) -> Flow:
    last = now.asked[-1] if now.asked else None
    words = ("none yet",) if last is None else (last.text,)
    refused = last is not None and last.reason is not None
    snapshot = now.version - now.tail
    has = setup.whole("snapshot") and snapshot
    outcome = "waits" if last is None else "refused" if refused else "an event"
    covers = (f"after event {snapshot}", f"and {many(now.tail, 'event')}") if has else ("none",)
    boxes = (
        Box("command", "command", 0, 0, words, "bad" if refused else "a"),
        Box("decide", "decide", 1, 0, (outcome,), "bad" if refused else "good"),
        Box("log", "log", 2, 0, (many(now.version, "event"),), "a"),
        Box("state", "state", 3, 0, (f"balance {now.state}",), "c"),
        Box("snapshot", "snapshot", 2, 1, covers, "" if has else "muted"),
    )
    arrows = (
        Arrow("command", "decide"),
        Arrow("decide", "log", "", "bad" if refused else ""),
        Arrow("log", "state"),
        *([Arrow("snapshot", "state")] if has else []),
    )
    reason = f" The last command was refused: {last.reason}." if last and last.reason else ""
    return Flow(
        "A command is decided into an event, and the events are folded into the state",
        f"{now.version} events give the balance {now.state}.{reason}",
        boxes,
        arrows,
    )


def _lanes(now: Moment) -> Lanes:
    first = max(0, now.version - _SHOWN)
    facts = now.facts[first:]
    pointers = []
    if now.tail < now.version:
        at = max(first, now.version - now.tail)
        pointers.append(Pointer(at, "snapshot", "b"))
    asked = now.asked[-_SHOWN:]
    return Lanes(
        "The last events, and the last commands: a refused one leaves no event",
        f"{now.version} events; {now.refused} of {len(now.asked)} commands were refused",
        (
            Lane("events", tuple(map(_cell, facts)), tuple(pointers), first),
            Lane(
                "balance",
                tuple(
                    Cell(str(fact.after), "muted", f"after event {fact.version}") for fact in facts
                ),
                first=first,
            ),
            Lane(
                "commands",
                tuple(
                    Cell("✗", "bad", f"{each.text}: refused, {each.reason}")
                    if each.reason
                    else Cell("✓", "good", each.text)
                    for each in asked
                ),
                first=len(now.asked) - len(asked),
            ),
        ),
    )


def _cell(fact: Fact) -> Cell:
    kind = "good" if fact.after > fact.before else "warn"
    return Cell(fact.text, kind, f"event {fact.version}: {fact.name} {fact.amount} by {fact.who}")


def _plot(now: Moment, setup: Setup, step: int) -> Plot:
    """The balance by the time of events. Refused commands are crosses below it."""
    ordered = sorted(now.facts, key=lambda fact: (fact.at, fact.version))
    corners: list[tuple[float, float]] = [(0.0, 0.0)]
    for fact in ordered:
        height = corners[-1][1]
        corners += [(fact.at, height), (fact.at, height + fact.after - fact.before)]
    corners.append((float(step), corners[-1][1]))
    refused = tuple(
        Point(asked.at, -10, "bad", f"{asked.text}: refused, {asked.reason}")
        for asked in now.asked
        if asked.reason
    )
    heights = [height for _, height in corners] or [0.0]
    chosen = setup.whole("second")
    label = "" if now.by_time is None else f"{now.by_time[0]} at second {chosen}"
    return Plot(
        "The balance by the time of its events",
        f"The balance is {now.state} after {step} seconds. {label}",
        Axis("seconds", 0, STEPS),
        Axis("balance", -20, max(100.0, *heights) * 1.1),
        bands=(Band(0, chosen, "muted", label),),
        lines=(Line(tuple(corners), "a"),),
        points=refused,
    )


def _grid(now: Moment) -> Grid:
    """The audit trail: the newest events, with the balance before and after."""
    rows = [
        (
            str(fact.version), f"{fact.at:g} s", f"{fact.name} {fact.amount}", fact.who,
            f"{fact.before} → {fact.after}", str(fact.commit),
        )
        for fact in now.facts[: -_ROWS - 1 : -1]
    ]  # fmt: skip
    return Grid(
        "The audit trail: who, what and when, and the balance before and after",
        ("version", "happened at", "event", "who", "balance", "commit"),
        tuple(rows),
        empty="No event yet.",
    )


SIMULATION = Simulation(
    name="event-sourcing",
    title="The event-sourced account",
    idea="An account is kept as the events that happened to it, and its balance is what they add "
    "up to. A command is decided on that balance, and becomes an event or is refused. So the "
    "balance of any moment is known, and can be computed again from the first event.",
    settings=(
        Slider("withdrawals", "Withdrawals", 0, 100, 60, 10, "%"),
        Slider("snapshot", "Snapshot every", 0, 10, 5, 1, "events", "0 makes none"),
        Slider("second", "Look back to second", 0, STEPS, 10, 1),
        Slider("credit", "What if: credit", 0, 60, 20, 5, "", "A rule that nobody uses yet"),
    ),
    frame=frame,
    steps=lambda setup: STEPS,
    prompts=(
        Prompt("Overdraw the account: a reason, and no event.", 12, {}, ((11, "overdraw"),)),
        Prompt(
            "Load without snapshots, then with one every two events: the same balance.",
            STEPS,
            {"snapshot": 2},
        ),
        Prompt(
            "A deposit is booked for six seconds ago: what was the balance at second 10?",
            15,
            {"withdrawals": 0},
            ((13, "backdate"),),
        ),
        Prompt(
            "Two tellers withdraw two thirds at once: one of them decides again.",
            14,
            {"withdrawals": 20},
            ((13, "race"),),
        ),
        Prompt("A command is sent twice: one effect.", 20, {}, ((19, "deposit"), (19, "again"))),
    ),
    look_for=(
        "Both replays give the same balance. The snapshot saves work, and is never the truth: it "
        "can be thrown away.",
        "A backdated deposit changes the balance at a time. It does not change the balance as it "
        "was known then: commits never change.",
        "What if runs another rule over the recorded commands. It needs those that were refused "
        "too, which are in the log with their reason.",
    ),
    question="An event with a wrong amount is in the log. How is it corrected?",
    answer="By another event, as in a ledger: a correction that says so. Events are facts that "
    "somebody may have acted on, so they are not changed. Every reader of the log learns of the "
    "correction in the same way as of everything else.",
    concept="concepts/event-sourcing.md",
    actions=(
        Action("deposit", "Deposit 50"),
        Action("overdraw", "Overdraw", "Withdraw 10 more than there is"),
        Action("again", "Send it again", "The last command, with the same id"),
        Action("race", "Two tellers", "Both withdraw two thirds of what they have seen"),
        Action("backdate", "Backdate", f"A deposit of 40 that counts from {BACK} seconds ago"),
    ),
    start=SENDING,
)
