"""Queue against log: the same messages, handed out one by one and read by position."""

from __future__ import annotations

from headrace.studio.learn.deliveries import (
    MESSAGES,
    ONCE,
    SESSION,
    STEPS,
    Hand,
    Moment,
    Side,
    history,
)
from headrace.studio.learn.frame import Arrow, Box, Cell, Flow, Frame, Grid, Lane, Lanes, Number
from headrace.studio.learn.simulation import Action, Choice, Prompt, Setup, Simulation, Slider


def frame(setup: Setup, step: int) -> Frame:
    """The messages, the queue and the groups after so many seconds."""
    now = history(setup)[step]
    panels = (_flow(now), _lanes(now), _grid(now))
    return Frame(step, STEPS, _caption(now, step), _numbers(now), panels)


def _numbers(now: Moment) -> tuple[Number, ...]:
    queue, group = now.queue, now.group
    return (
        Number("messages", now.written),
        Number("in the queue", queue.left, kind="warn" if queue.left else "good"),
        Number("handed out again", queue.again, hint="By the queue, after a lease ended"),
        Number("queue: done twice", queue.twice, kind="bad" if queue.twice else "good"),
        Number("queue: lost", len(queue.lost), kind="bad" if queue.lost else "good"),
        Number("billing lag", group.left, kind="warn" if group.left else "good"),
        Number("read again", group.again, hint="By billing, from the committed position"),
        Number("billing: lost", len(group.lost), kind="bad" if group.lost else "good"),
        Number("kept in the log", now.kept, hint="Nobody's reading or accepting removes one"),
    )


def _caption(now: Moment, step: int) -> str:
    if step == 0:
        return "The topic is empty. A queue and two groups read it. Press play, or step forward."
    if now.said:
        return " ".join(now.said)
    if now.written == MESSAGES and not now.queue.left and not now.group.left:
        return (
            f"All is done. The queue is empty, and the log still has all {now.kept} messages for "
            "whoever comes next."
        )
    return (
        f"{now.written} messages are written. {now.queue.left} are left in the queue, and billing "
        f"is {now.group.left} behind."
    )


def _flow(now: Moment) -> Flow:
    queue, group = now.queue, now.group
    rows = len(queue.hands) + len(group.hands) + 1
    boxes = [
        Box("topic", "topic", 0, (rows - 1) / 2, (f"{now.kept} messages", "2 partitions"), "a"),
        Box(
            "queue",
            "queue",
            1,
            (len(queue.hands) - 1) / 2,
            (f"{now.waiting} wait", f"{queue.left - now.waiting} in flight"),
            "warn" if now.waiting else "",
        ),
        Box(
            "billing",
            "group billing",
            1,
            len(queue.hands) + (len(group.hands) - 1) / 2,
            ("2 positions", f"lag {group.left}"),
            "warn" if group.left else "",
        ),
        Box(
            "analytics",
            "group analytics",
            1,
            rows - 1,
            ("2 positions", f"has read {now.analytics}"),
        ),
    ]
    arrows = [Arrow("topic", "queue"), Arrow("topic", "billing"), Arrow("topic", "analytics")]
    for place, (name, hand) in enumerate(
        [*(("queue", each) for each in queue.hands), *(("billing", each) for each in group.hands)]
    ):
        boxes.append(_box(name, hand, place))
        arrows.append(Arrow(name, hand.name, "", "bad" if not hand.alive else "", _token(hand)))
    return Flow(
        "One topic. A queue hands its messages out; groups keep positions in it",
        f"The queue has {now.waiting} waiting messages and {queue.left - now.waiting} in flight; "
        f"billing is {group.left} behind",
        tuple(boxes),
        tuple(arrows),
    )


def _box(side: str, hand: Hand, row: int) -> Box:
    what = "worker" if side == "queue" else "member"
    if not hand.alive:
        held = "" if hand.message is None else f"had message {hand.message}"
        return Box(hand.name, f"{what} {hand.name}", 2, row, ("crashed", held), "bad")
    does = "idle" if hand.message is None else f"message {hand.message}"
    times = f"delivery {hand.delivery}" if hand.message is not None and hand.delivery > 1 else ""
    reads = " and ".join(map(str, hand.partitions))
    below = times or (f"partition {reads}" if reads else "")
    kind = "warn" if times else "good" if hand.message is not None else "muted"
    return Box(hand.name, f"{what} {hand.name}", 2, row, (does, below), kind)


def _token(hand: Hand) -> tuple[Cell, ...]:
    if hand.message is None:
        return ()
    return (Cell(str(hand.message), "now" if hand.alive else "bad", f"message {hand.message}"),)


def _lanes(now: Moment) -> Lanes:
    lost = len(now.queue.lost) + len(now.group.lost)
    return Lanes(
        "Each message: ✓ done, by whom it is held, ✗ lost, · waiting",
        f"{now.written} of {MESSAGES} messages are written; {lost} deliveries are lost",
        (
            Lane("message", tuple(_written(now, number) for number in _numbered())),
            Lane("queue", tuple(_cell(now, now.queue, number) for number in _numbered())),
            Lane("billing", tuple(_cell(now, now.group, number) for number in _numbered())),
        ),
    )


def _numbered() -> range:
    return range(1, MESSAGES + 1)


def _written(now: Moment, number: int) -> Cell:
    there = number <= now.written
    return Cell(str(number) if there else "", "now" if there else "muted", f"message {number}")


def _cell(now: Moment, side: Side, number: int) -> Cell:
    if number > now.written:
        return Cell("", "muted")
    times = side.done[number - 1]
    holder = next((hand for hand in side.hands if hand.message == number and hand.alive), None)
    if holder is not None:
        return Cell(holder.name, "now", f"{holder.name} has message {number}, {times} times done")
    if number in side.lost:
        return Cell("✗", "bad", f"message {number} is lost")
    if times:
        text = "✓" if times == 1 else f"✓{times}"
        return Cell(text, "good" if times == 1 else "warn", f"message {number}: {times} times done")
    dead = next((hand for hand in side.hands if hand.message == number), None)
    if dead is not None:
        return Cell(dead.name, "bad", f"{dead.name} has crashed with message {number}")
    return Cell("·", "warn", f"message {number} waits")


def _grid(now: Moment) -> Grid:
    queue, group = now.queue, now.group
    rows = (
        ("handled", _done(queue), _done(group), str(now.analytics)),
        ("waiting or in flight", str(queue.left), str(group.left), "0"),
        ("handed out or read again", str(queue.again), str(group.again), _again(now)),
        ("handled more than once", str(queue.twice), str(group.twice), "-"),
        ("lost", _few(queue.lost), _few(group.lost), "0"),
        ("still there for somebody new", str(queue.left), str(now.kept), str(now.kept)),
    )
    kinds = ("", "", "", "", "bad" if queue.lost or group.lost else "", "")
    return Grid(
        "What became of the messages",
        ("", "queue", "group billing", "group analytics"),
        rows,
        kinds,
    )


def _done(side: Side) -> str:
    return str(sum(times > 0 for times in side.done))


def _again(now: Moment) -> str:
    return str(max(0, now.analytics - now.written))


def _few(numbers: frozenset[int]) -> str:
    return f"{len(numbers)}: {', '.join(map(str, sorted(numbers)))}" if numbers else "0"


SIMULATION = Simulation(
    name="queue-and-log",
    title="Queue against log",
    idea="A queue hands each message to one worker, and it is gone when it is done. A log keeps "
    "every message, and each group of readers keeps its position. Here both are over the same "
    "topic, so you can crash a worker of the one and a reader of the other, and compare.",
    settings=(
        Slider("workers", "Workers of the queue", 1, 4, 3),
        Slider("work", "A message takes", 1, 3, 2, 1, "s"),
        Slider("lease", "Lease", 2, 8, 4, 1, "s", "A message is handed out again when it ends"),
        Choice(
            "delivery",
            "Delivery",
            (
                ("at-least-once", "at least once: accept after"),
                (ONCE, "at most once: accept before"),
            ),
            "at-least-once",
        ),
    ),
    frame=frame,
    steps=lambda setup: STEPS,
    prompts=(
        Prompt("Run to the end: the queue is empty, and the log is full.", STEPS),
        Prompt("Crash a worker: four seconds later somebody else has its message.", 12, {},
               ((6, "crash-worker"),)),
        Prompt("Crash a member of billing: the other one resumes its partition.", 18, {},
               ((6, "crash-member"),)),
        Prompt("At most once: crash both. Two messages are lost, and nobody is told.", 12,
               {"delivery": ONCE}, ((6, "crash-worker"), (6, "crash-member"))),
        Prompt("A lease shorter than the work: messages are done again and again.", 12,
               {"lease": 2, "work": 3}),
        Prompt("Replay analytics, and set the queue back: history is read, work is done twice.",
               STEPS, {"work": 1}, ((22, "replay"), (24, "seek"))),
    ),
    look_for=(
        "A crashed worker holds up one message. A crashed member holds up a partition, and all "
        "that waits in it.",
        "More workers than partitions help the queue. A third member of billing would be idle.",
        "What the queue has done is gone from it, and the topic still has it: so a new group reads "
        "everything, and even the queue can be set back.",
    ),
    question="A worker has charged a card, and crashes before it accepts the message. What then?",
    answer="The message is handed out again, and the card is charged twice, unless the charge "
    "carries the message's id and the payment service knows it. At most once has the other "
    "mistake: the message is accepted first, so a crash before the charge loses it. What a worker "
    "writes to the log itself commits with the accept, and happens once.",
    concept="concepts/queues.md",
    actions=(
        Action("crash-worker", "Crash a worker", "In the middle of a message"),
        Action("crash-member", "Crash a member", f"The group notices after {SESSION} s"),
        Action("restart", "Start them again", "A new process for each that has crashed"),
        Action("replay", "Replay analytics", "Set the group back to the first message"),
        Action("seek", "Set the queue back", "Every message waits again"),
    ),
    start=12,
)  # fmt: skip
