"""Partitions, keys and consumer groups, on a model of three brokers."""

from __future__ import annotations

from headrace.studio.learn.clusters import (
    BROKERS,
    KEYS,
    MEMBERS,
    OTHERS,
    PARTITIONS,
    STEPS,
    history,
    listed,
    offline,
)
from headrace.studio.learn.frame import (
    Arrow,
    Box,
    Cell,
    Flow,
    Frame,
    Grid,
    Lane,
    Lanes,
    Number,
    Pointer,
)
from headrace.studio.learn.models.cluster import Cluster
from headrace.studio.learn.simulation import Action, Choice, Prompt, Setup, Simulation, Slider

_SHOWN = 15
_KINDS = {"ada": "a", "ben": "b", "cal": "c"}


def frame(setup: Setup, step: int) -> Frame:
    """The cluster after so many steps."""
    moment = history(setup)[step]
    now = moment.cluster
    return Frame(
        step,
        STEPS,
        " ".join(moment.said) or _caption(now),
        _numbers(now),
        (_flow(now), _lanes(now), _grid(now)),
    )


def _caption(now: Cluster) -> str:
    if not now.members:
        return "Nobody reads. Messages wait in their partitions."
    lag = _lag(now)
    waiting = "message waits" if lag == 1 else "messages wait"
    behind = f"{lag} {waiting}." if lag else "Every message is read."
    return f"Each consumer reads one message per step from its own partitions. {behind}"


def _lag(now: Cluster) -> int:
    return sum(len(each.messages) - each.position for each in now.partitions)


def _numbers(now: Cluster) -> tuple[Number, ...]:
    dark, lag = len(offline(now)), _lag(now)
    stored = sum(len(each.messages) for each in now.partitions)
    return (
        Number("messages", stored, hint="Stored in a partition"),
        Number("lag", lag, kind="warn" if lag > PARTITIONS else "", hint="Stored and not yet read"),
        Number("consumers", len(now.members)),
        Number("idle", len(now.idle), kind="warn" if now.idle else "good"),
        Number("moved", len(now.moved), hint="Partitions with another owner at the last rebalance"),
        Number("brokers alive", len(now.alive), kind="" if len(now.alive) == BROKERS else "warn"),
        Number("offline", dark, kind="bad" if dark else "", hint="Without a leader"),
        Number("refused", now.refused, kind="bad" if now.refused else "", hint="Messages"),
    )


def _flow(now: Cluster) -> Flow:
    pitch = 0.54
    tall = max(PARTITIONS, len(now.members))
    boxes, arrows = [], []
    for place, broker in enumerate(now.brokers):
        led = [n for n in range(PARTITIONS) if now.leader(n) == broker]
        there = broker in now.alive
        row = (place + 0.5) * tall / BROKERS * pitch - pitch / 2
        words = f"leads {listed(led)}" if there else "dead"
        boxes.append(
            Box(f"b{broker}", f"broker {broker}", 0, row, (words,), "" if there else "bad")
        )
    for number in range(PARTITIONS):
        leader, owner, part = now.leader(number), now.owner(number), f"p{number}"
        moved = number in now.moved
        row = (number + 0.5) * tall / PARTITIONS * pitch - pitch / 2
        end = len(now.partitions[number].messages)
        words = "offline" if leader is None else f"{end} messages"
        kind = "bad" if leader is None else "warn" if moved else ""
        boxes.append(Box(part, f"partition {number}", 1.5, row, (words,), kind))
        if leader is not None:
            arrows.append(Arrow(f"b{leader}", part))
        if owner is not None:
            arrows.append(Arrow(part, owner, "moved" * moved, "warn" * moved))
    for place, (member, owned) in enumerate(now.owners):
        row = (place + 0.5) * tall / len(now.members) * pitch - pitch / 2
        words = f"reads {listed(list(owned))}" if owned else "idle"
        boxes.append(Box(member, member, 3, row, (words,), "good" if owned else "muted"))
    return Flow(
        "Brokers lead partitions, and consumers of one group share them",
        _described(now),
        tuple(boxes),
        tuple(arrows),
    )


def _described(now: Cluster) -> str:
    reads = [f"{member} reads {listed(list(owned))}" for member, owned in now.owners]
    leads = [
        f"broker {broker} leads {listed([n for n in range(PARTITIONS) if now.leader(n) == broker])}"
        for broker in now.brokers
    ]
    return "; ".join([*leads, *reads])


def _lanes(now: Cluster) -> Lanes:
    lanes = []
    for number, each in enumerate(now.partitions):
        first = max(0, len(each.messages) - _SHOWN)
        cells = tuple(
            Cell(m.key, _KINDS.get(m.key, ""), f"{m.key}, message {m.number}")
            for m in each.messages[first:]
        )
        owner, leader = now.owner(number), now.leader(number)
        behind = len(each.messages) - each.position
        pointers = () if owner is None else (Pointer(each.position, owner, "now"),)
        led = "offline" if leader is None else f"broker {leader}"
        note = f"{led}, lag {behind}"
        lanes.append(Lane(f"partition {number}", cells, pointers, first, note))
    return Lanes(
        f"Messages by key, the newest {_SHOWN} of each partition",
        "; ".join(
            f"partition {number}: {len(each.messages)} messages, {each.position} read"
            for number, each in enumerate(now.partitions)
        ),
        tuple(lanes),
    )


def _grid(now: Cluster) -> Grid:
    rows = []
    for key in KEYS:
        number = now.partition_of(key)
        found = [m.number for m in now.partitions[number].messages if m.key == key]
        leader, owner = now.leader(number), now.owner(number)
        rows.append(
            (
                key,
                str(number),
                "none" if leader is None else str(leader),
                owner or "nobody",
                listed(found[-_SHOWN:]),
            )
        )
    return Grid(
        "Three keys: each has one partition, and there its messages are in order",
        ("key", "partition", "broker", "read by", "messages"),
        tuple(rows),
    )


SIMULATION = Simulation(
    name="partitions",
    title="Partitions, keys and consumer groups",
    idea="A topic is cut into partitions so that several machines can share it. A key always goes "
    "to the same partition, and a partition to one consumer of a group: that is what keeps the "
    "messages of a key in order, and what limits how many consumers can help.",
    settings=(
        Slider("consumers", "Consumers at the start", 1, MEMBERS, 3),
        Choice(
            "assignor",
            "Assignor",
            (("sticky", "sticky"), ("range", "range")),
            "sticky",
            "Sticky moves as few partitions as possible; range cuts them anew",
        ),
        Slider("replicas", "Replicas", 1, BROKERS, 2, hint="Brokers that have each partition"),
        Slider("rate", "Messages per step", 0, 6, 2),
        Slider(
            "keys", "Keys", 1, len(KEYS) + len(OTHERS), 12, hint="Different keys in the traffic"
        ),
    ),
    frame=frame,
    steps=lambda setup: STEPS,
    prompts=(
        Prompt("Eight consumers on six partitions: two do nothing.", 20, {"consumers": 8}),
        Prompt(
            "One of four leaves, sticky: only its partitions move.",
            21,
            {"consumers": 4},
            ((20, "remove"),),
        ),
        Prompt(
            "The same with range: nearly everything moves.",
            21,
            {"consumers": 4, "assignor": "range"},
            ((20, "remove"),),
        ),
        Prompt("Kill a broker: leaders change, no message is refused.", 21, {}, ((20, "kill"),)),
        Prompt("The same without replicas.", 30, {"replicas": 1}, ((20, "kill"),)),
        Prompt(
            "Only one key: five partitions and two consumers wait for nothing.", 30, {"keys": 1}
        ),
    ),
    look_for=(
        "Whatever joins, leaves or dies, a key stays in its partition, and its messages in order.",
        "A consumer that leaves costs a rebalance; a broker that dies does not.",
        "Lag grows where messages come faster than the one owner of a partition reads. More "
        "consumers help as long as there are more partitions than consumers.",
    ),
    question="A group of eight reads a topic of six partitions, and is too slow. What helps?",
    answer="No ninth consumer: six of the eight work, and two are idle already. More partitions "
    "would put them to work, but then keys move to other partitions, and their order is kept only "
    "from there on. A faster consumer always helps; a hot key, with most of the traffic, "
    "needs a better key.",
    concept="concepts/log-and-queue.md",
    actions=(
        *(Action(f"send-{key}", f"Send {key}", "A message with this key") for key in KEYS),
        Action("add", "Add a consumer"),
        Action("remove", "Remove a consumer", "The first one leaves"),
        Action("kill", "Kill a broker", "The first one that is alive"),
        Action("restart", "Restart a broker"),
    ),
    model="Brokers, replicas and leaders are a small model in plain Python. headrace's own log is "
    "one folder without brokers, or a Kafka cluster that does this itself. Keys and assignments "
    "are no model: they come from headrace's partitioner (Kafka's murmur2) and its assignors. In "
    "headrace a partition moves after its owner has committed what it has read; here, at once.",
    start=12,
)
