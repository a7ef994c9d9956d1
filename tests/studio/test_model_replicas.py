"""Laws of the model of replicas."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.studio.learn.models.replicas import (
    BROKERS,
    Cluster,
    kill,
    replicate,
    restart,
    send,
)

Step = Callable[[Cluster], Cluster]
brokers = st.sampled_from(BROKERS)
fetches = st.fixed_dictionaries({broker: st.integers(0, 3) for broker in BROKERS})
steps = st.lists(
    st.one_of(
        st.just(send),
        st.just(send),
        fetches.map(lambda found: lambda cluster: replicate(cluster, found)),
        fetches.map(lambda found: lambda cluster: replicate(cluster, found)),
        brokers.map(lambda broker: lambda cluster: kill(cluster, broker)),
        brokers.map(lambda broker: lambda cluster: restart(cluster, broker)),
    ),
    max_size=50,
)


def run(cluster: Cluster, steps: list[Step]) -> list[Cluster]:
    found = [cluster]
    for step in steps:
        found.append(step(found[-1]))
    return found


@given(steps=steps, least=st.integers(1, 3))
def test_what_all_in_sync_replicas_have_is_not_lost_with_acks_all(
    steps: list[Step], least: int
) -> None:
    for now in run(Cluster(acks_all=True, min_in_sync=least), steps):
        assert now.lost == ()
        if now.leader is not None:
            for broker in now.in_sync:
                assert set(now.acked) <= set(now.log(broker))


@given(steps=steps, acks_all=st.booleans())
def test_the_high_watermark_never_goes_back_while_elections_are_clean(
    steps: list[Step], acks_all: bool
) -> None:
    found = run(Cluster(acks_all=acks_all), steps)
    for was, now in pairwise(found):
        assert now.high >= was.high
        if was.leader is not None and now.leader is not None:
            # What readers could read stays the same.
            assert now.log(now.leader)[: was.high] == was.log(was.leader)[: was.high]


@given(steps=steps, least=st.integers(1, 3))
def test_a_record_is_acknowledged_when_at_least_the_minimum_of_replicas_has_it(
    steps: list[Step], least: int
) -> None:
    for was, now in pairwise(run(Cluster(acks_all=True, min_in_sync=least), steps)):
        for record in set(now.acked) - set(was.acked):
            assert sum(record in now.log(broker) for broker in now.in_sync) >= least


@given(steps=steps, acks_all=st.booleans(), unclean=st.booleans(), least=st.integers(1, 3))
def test_every_record_that_was_sent_is_acknowledged_waiting_or_refused(
    steps: list[Step], acks_all: bool, unclean: bool, least: int
) -> None:
    for now in run(Cluster(acks_all, least, unclean), steps):
        answers = [*now.acked, *now.waiting, *now.refused]
        assert sorted(answers) == list(range(now.sent))


def test_acks_1_loses_what_only_the_dead_leader_had() -> None:
    now = Cluster(acks_all=False)
    for _ in range(3):
        now = send(now)
    now = replicate(now, {2: 1, 3: 0})
    assert now.acked == (0, 1, 2)
    now = kill(now, 1)
    assert (now.leader, now.lost) == (2, (1, 2))
    now = restart(now, 1)
    assert now.log(1) == (0, 1, 2)
    now = replicate(send(now), {})
    # The old leader drops what it alone had, before it copies anything.
    assert now.log(1) == (0,)
    now = replicate(now, {1: 5, 3: 5})
    assert now.log(1) == now.log(2) == now.log(3) == (0, 3)


def test_with_acks_all_the_same_failure_leaves_records_without_an_answer() -> None:
    now = Cluster(acks_all=True)
    for _ in range(3):
        now = send(now)
    now = replicate(now, {2: 1, 3: 1})
    assert (now.acked, now.waiting) == ((0,), (1, 2))
    now = kill(now, 1)
    assert (now.leader, now.lost, now.refused) == (2, (), (1, 2))


def test_an_unclean_leader_loses_acknowledged_records_with_acks_all_too() -> None:
    for unclean, lost in ((False, ()), (True, (0, 1, 2, 3, 4, 5))):
        now = Cluster(acks_all=True, min_in_sync=1, unclean=unclean)
        for _ in range(6):
            now = replicate(send(now), {2: 0, 3: 0})
        assert now.in_sync == {1}
        assert now.acked == (0, 1, 2, 3, 4, 5)
        now = kill(now, 1)
        assert (now.leader, now.lost) == (2 if unclean else None, lost)
