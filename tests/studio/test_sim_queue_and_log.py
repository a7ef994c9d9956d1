"""Queue against log: what a crash leaves, by laws over the messages of both sides."""

from __future__ import annotations

import pytest

from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.deliveries import MESSAGES, ONCE, SESSION, STEPS, Moment, history
from headrace.studio.learn.queue_and_log import SIMULATION
from headrace.studio.learn.simulation import Setup

NAME = "queue-and-log"
CRASHES = "6:crash-worker,6:crash-member,9:crash-worker,14:restart"


def setup(**given: object) -> Setup:
    return SIMULATION.setup({name: str(value) for name, value in given.items()})


def end(**given: object) -> Moment:
    return history(setup(**given))[-1]


def test_the_same_setup_gives_the_same_history() -> None:
    chosen = setup(do=CRASHES)
    assert history.__wrapped__(chosen) == history.__wrapped__(chosen)


@pytest.mark.parametrize(("seed", "do"), [(1, ""), (1, CRASHES), (2, CRASHES)])
def test_at_least_once_every_message_is_done_on_both_sides(seed: int, do: str) -> None:
    last = end(seed=seed, work=1, do=do)
    for side in (last.queue, last.group):
        assert (side.done, side.left, side.lost) == ((1,) * MESSAGES, 0, frozenset())
    assert last.kept == last.analytics == MESSAGES


@pytest.mark.parametrize("seed", [1, 2])
def test_at_most_once_what_was_in_the_hands_of_the_crashed_is_lost(seed: int) -> None:
    chosen = setup(seed=seed, delivery=ONCE, work=1, do="6:crash-worker,6:crash-member,9:restart")
    before, last = history(chosen)[6], history(chosen)[-1]
    for then, side in ((before.queue, last.queue), (before.group, last.group)):
        held = next((hand.message for hand in then.hands if hand.message is not None), None)
        assert side.lost == ({held} if held else set())
        assert [number for number in range(1, MESSAGES + 1) if not side.done[number - 1]] == [
            *side.lost
        ]
        assert max(side.done) == 1 and side.left == 0
    assert last.kept == MESSAGES


@pytest.mark.parametrize("lease", [3, 6])
def test_a_message_of_a_crashed_worker_is_handed_out_when_its_lease_ends(lease: int) -> None:
    moments = history(setup(lease=lease, do="6:crash-worker"))
    (dead,) = [hand for hand in moments[7].queue.hands if not hand.alive]
    taken = next(
        step for step, moment in enumerate(moments)
        if any(hand.message == dead.message for hand in moment.queue.hands)
    )  # fmt: skip
    again = next(
        step for step, moment in enumerate(moments)
        if any(hand.alive and hand.message == dead.message for hand in moment.queue.hands[1:])
    )  # fmt: skip
    assert taken + lease <= again <= taken + lease + 2
    assert [moment.queue.again for moment in (moments[again - 1], moments[again])] == [0, 1]
    # The others of the queue never waited: everything else was done before or meanwhile.
    assert sum(times > 0 for times in moments[again].queue.done) > moments[6].queue.done.count(1)


def test_a_crashed_member_holds_up_its_partition_until_its_session_ends() -> None:
    moments = history(setup(do="6:crash-member"))
    (dead,) = [hand for hand in moments[7].group.hands if not hand.alive]
    (held,) = [hand.partitions for hand in moments[6].group.hands if hand.name == dead.name]
    (other,) = [hand.name for hand in moments[7].group.hands if hand.alive]
    for moment in moments[7 : 6 + SESSION - 2]:
        (hand,) = [hand for hand in moment.group.hands if hand.name == other]
        assert not set(hand.partitions) & set(held)
    (hand,) = [hand for hand in moments[-1].group.hands if hand.name == other]
    assert set(held) < set(hand.partitions)
    assert moments[-1].group.again == 1


def test_a_lease_shorter_than_the_work_does_messages_twice() -> None:
    assert end(lease=2, work=3).queue.twice > 0
    assert end(lease=4, work=3).queue.twice == 0


def test_a_replay_reads_everything_again_and_a_queue_set_back_hands_everything_out_again() -> None:
    last = end(work=1, workers=4, do="22:replay,24:seek")
    assert last.analytics == 2 * MESSAGES
    assert last.queue.done == (2,) * MESSAGES
    assert (last.group.done, last.group.again) == ((1,) * MESSAGES, 0)


def test_one_worker_more_helps_the_queue_alone() -> None:
    few, many = (history(setup(workers=workers, work=3)) for workers in (1, 4))
    assert few[STEPS // 2].queue.left > many[STEPS // 2].queue.left
    for one, other in zip(few, many, strict=True):
        assert one.group.done == other.group.done


def test_the_caption_says_who_has_crashed_with_what() -> None:
    frame = simulate(NAME, step=7, do="6:crash-worker", delivery=ONCE)
    assert "has crashed with message" in frame.caption and "is lost" in frame.caption
    assert frame.number("queue: lost") == 1
