"""Leader loss: an acknowledgement from one broker, or from all that are in sync."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache

from headrace.studio.learn.frame import Cell, Frame, Grid, Lane, Lanes, Number, Pointer
from headrace.studio.learn.models.replicas import (
    BROKERS,
    PATIENCE,
    Cluster,
    kill,
    replicate,
    restart,
    send,
)
from headrace.studio.learn.simulation import Action, Choice, Prompt, Setup, Simulation, Slider

TICKS = 30
_CELLS = 15
_EVERYTHING = TICKS
NAMES = ("acks=1", "acks=all")

Pair = tuple[Cluster, Cluster]
"""The same partition with each setting of the producer."""


@lru_cache(maxsize=64)
def fetches(seed: int, lag: int) -> tuple[Mapping[int, int], ...]:
    """The brokers that copy the leader's log in each tick: each once in `lag` ticks on average."""
    rng = random.Random(seed)
    return tuple(
        {broker: _EVERYTHING for broker in BROKERS if rng.random() < 1 / lag} for _ in range(TICKS)
    )


def ticked(cluster: Cluster, done: Sequence[str], copied: Mapping[int, int]) -> Cluster:
    """A tick: what a person does, or a record and what followers copy."""
    if not done:
        return replicate(send(cluster), copied)
    for action in done:
        match action:
            case "kill":
                cluster = cluster if cluster.leader is None else kill(cluster, cluster.leader)
            case _:
                for broker in BROKERS:
                    cluster = restart(cluster, broker)
    return cluster


@lru_cache(maxsize=64)
def history(setup: Setup) -> tuple[Pair, ...]:
    """Both clusters after each tick."""
    least, unclean = setup.whole("least"), setup.text("unclean") == "yes"
    now = Cluster(False, least, unclean), Cluster(True, least, unclean)
    found = [now]
    for tick, copied in enumerate(fetches(setup.seed, setup.whole("lag"))):
        one, every = (ticked(each, setup.actions_at(tick), copied) for each in now)
        now = one, every
        found.append(now)
    return tuple(found)


def frame(setup: Setup, step: int) -> Frame:
    """Both clusters after so many ticks."""
    before = history(setup)
    now = before[step]
    return Frame(
        step,
        TICKS,
        _caption(before, step, setup),
        _numbers(now),
        (*(_lanes(name, each) for name, each in zip(NAMES, now, strict=True)), _grid(now)),
    )


def _numbers(now: Pair) -> tuple[Number, ...]:
    found = [Number("sent", now[0].sent)]
    for name, each in zip(NAMES, now, strict=True):
        lost, errors = len(each.lost), len(each.refused)
        found += [
            Number(f"{name}: acknowledged", len(each.acked), kind="good"),
            Number(
                f"{name}: lost",
                lost,
                kind="bad" if lost else "",
                hint="Acknowledged, and not in the log of the leader",
            ),
            Number(
                f"{name}: errors",
                errors,
                kind="warn" if errors else "",
                hint="The producer knows, and can send again",
            ),
        ]
    waiting = len(now[1].waiting)
    found.append(Number("acks=all: waiting", waiting, hint="Not all in-sync replicas have them"))
    return tuple(found)


def _caption(before: Sequence[Pair], step: int, setup: Setup) -> str:
    if step == 0:
        return "A producer is about to send records to broker 1, which leads. Two brokers follow."
    was, now = before[step - 1], before[step]
    done = setup.actions_at(step - 1)
    if "kill" in done:
        if was[0].leader is None and was[1].leader is None:
            return "There is no leader to kill."
        return " ".join(
            f"{name}: " + _elected(old, new) for name, old, new in zip(NAMES, was, now, strict=True)
        )
    if done:
        return "The dead brokers are back. They follow the leader, and drop what it does not have."
    one, every = now
    if one.leader is None and every.leader is None:
        return "No broker may lead: the producer gets errors until an in-sync replica is back."
    said = "acknowledged" if every.sent - 1 in every.acked else "refused"
    if every.sent - 1 in every.waiting:
        said = "waiting for the followers"
    return (
        f"Record {one.sent - 1} is sent. acks=1: "
        f"{'acknowledged' if one.sent - 1 in one.acked else 'refused'}. acks=all: {said}."
    )


def _elected(old: Cluster, new: Cluster) -> str:
    if new.leader is None:
        return f"broker {old.leader} dies, and no in-sync replica is left to lead."
    lost = len(new.lost) - len(old.lost)
    price = f"{lost} acknowledged record{'s are' if lost != 1 else ' is'} lost"
    return f"broker {old.leader} dies, broker {new.leader} leads, {price}."


def _lanes(name: str, now: Cluster) -> Lanes:
    longest = max(len(log) for log in now.logs)
    first = max(0, longest - _CELLS)
    lost = set(now.lost)

    def lane(broker: int) -> Lane:
        log = now.log(broker)
        dead = broker not in now.alive
        note = (
            "dead"
            if dead
            else "leader"
            if broker == now.leader
            else "in sync"
            if broker in now.in_sync
            else "not in sync"
        )
        pointers = (Pointer(now.high, "high watermark", "now"),) if note == "leader" else ()
        cells = tuple(_cell(record, now, record in lost, dead) for record in log[first:])
        return Lane(f"broker {broker}", cells, pointers, first, note)

    return Lanes(
        f"{name}: the logs of the three brokers",
        f"{name}: leader {now.leader or 'none'}, {len(now.acked)} records acknowledged, "
        f"{len(now.lost)} of them lost",
        tuple(lane(broker) for broker in BROKERS),
    )


def _cell(record: int, now: Cluster, lost: bool, dead: bool) -> Cell:
    if lost:
        return Cell(str(record), "bad", f"record {record}: acknowledged, and lost")
    if dead:
        return Cell(str(record), "muted", f"record {record}: on a dead broker")
    if record in now.acked:
        return Cell(str(record), "good", f"record {record}: acknowledged")
    if record in now.waiting:
        return Cell(str(record), "a", f"record {record}: the producer waits")
    return Cell(str(record), "warn", f"record {record}: the producer got an error")


def _grid(now: Pair) -> Grid:
    return Grid(
        "What the producer was told, and what is there",
        ("producer", "leader", "in sync", "acknowledged", "waiting", "errors", "lost"),
        tuple(
            (
                name,
                "none" if each.leader is None else f"broker {each.leader}",
                ", ".join(map(str, sorted(each.in_sync & each.alive))) or "none",
                *(str(len(some)) for some in (each.acked, each.waiting, each.refused, each.lost)),
            )
            for name, each in zip(NAMES, now, strict=True)
        ),
        tuple("bad" if each.lost else "" for each in now),
    )


SIMULATION = Simulation(
    name="leader-loss",
    title="When the leader dies",
    idea="A record is safe when it is on more than one broker. acks=1 answers before that, and "
    "acks=all answers after it.",
    settings=(
        Slider("lag", "Followers copy every", 1, 8, 3, 1, "ticks", "On average"),
        Slider("least", "min.insync.replicas", 1, 3, 2, 1, "", "acks=all needs so many in sync"),
        Choice(
            "unclean",
            "Unclean election",
            (("no", "no"), ("yes", "yes")),
            "no",
            "A broker that is not in sync may lead",
        ),
    ),
    frame=frame,
    steps=lambda setup: TICKS,
    prompts=(
        Prompt("Kill the leader: acks=1 loses what it promised.", 11, {}, ((10, "kill"),)),
        Prompt(
            "Start the old leader again: it drops its own records.",
            14,
            {},
            ((10, "kill"), (12, "restart")),
        ),
        Prompt(
            "Slow followers, and 3 in-sync replicas: errors instead of losses.",
            28,
            {"lag": 8, "least": 3},
        ),
        Prompt(
            "Slow followers and an unclean election: acks=all loses, too.",
            19,
            {"lag": 8, "least": 1, "unclean": "yes"},
            ((18, "kill"),),
        ),
    ),
    look_for=(
        "The high watermark is how far all in-sync replicas are. Readers see nothing behind it.",
        "A red record was acknowledged, and the new leader does not have it.",
        f"A follower that is behind for more than {PATIENCE} ticks is not in sync, and nobody "
        "waits for it.",
    ),
    question="With acks=all and min.insync.replicas=1, how many brokers may have a record when it "
    "is acknowledged?",
    answer="One. acks=all means all that are in sync, and if both followers have fallen behind, "
    "that is the leader alone. min.insync.replicas=2 refuses the record instead.",
    concept="concepts/exactly-once.md",
    actions=(
        Action("kill", "Kill the leader", "With all that only it has"),
        Action("restart", "Restart the dead", "They come back with their old logs"),
    ),
    model="The log that is built into headrace is on one machine and has no replicas: it answers "
    "after the record is on disk. This is a reference model in plain Python of a topic with three "
    "replicas on Kafka, and tests hold it to its laws. headrace writes to Kafka with acks=all, "
    "unless a producer asks for less.",
)
