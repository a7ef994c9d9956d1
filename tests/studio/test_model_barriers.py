"""Laws of the model of barriers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.studio.learn.models.barriers import CHANNELS, Checkpoint, Event, Job, run

BEFORE = {
    "left": ("a→left",),
    "right": ("b→right",),
    "join": ("a→left", "b→right", "left→join", "right→join"),
}
"""The channels that an event may still be in before an operator takes it in."""
INPUTS = {"left": "a", "right": "b", "join": "ab"}

ticks = st.lists(st.integers(0, 3), max_size=14).map(
    lambda gaps: tuple(sum(gaps[: n + 1]) for n in range(len(gaps)))
)
jobs = st.builds(
    Job,
    a=ticks,
    b=ticks,
    interval=st.integers(1, 12),
    aligned=st.booleans(),
    slow=st.integers(1, 4),
    skew=st.integers(0, 5),
)
failures = st.frozensets(st.integers(0, 60), max_size=4)


def before_barrier(saved: Checkpoint, operator: str) -> Counter[Event]:
    """The events of an operator's inputs before the barrier."""
    return Counter(
        (source, number) for source in INPUTS[operator] for number in range(saved.offsets[source])
    )


@given(job=jobs, failures=failures)
def test_a_checkpoint_is_a_consistent_cut(job: Job, failures: frozenset[int]) -> None:
    for saved in run(job, failures)[-1].checkpoints:
        for operator, channels in BEFORE.items():
            found = Counter(saved.states[operator])
            for channel in channels:
                found.update(saved.in_flight[channel])
            assert found == before_barrier(saved, operator), operator


@given(job=jobs, failures=failures)
def test_an_aligned_checkpoint_has_nothing_on_the_way(job: Job, failures: frozenset[int]) -> None:
    for saved in run(job, failures)[-1].checkpoints:
        if job.aligned:
            assert not any(saved.in_flight.values())


@given(job=jobs, failures=failures)
def test_after_failures_the_state_is_that_of_a_run_without_any(
    job: Job, failures: frozenset[int]
) -> None:
    calm, failed = run(job)[-1], run(job, failures)[-1]
    for operator in CHANNELS:
        assert Counter(failed.states[operator]) == Counter(calm.states[operator])
    assert Counter(calm.states["join"]) == Counter(job.events)


@given(job=jobs, failures=failures)
def test_a_sink_never_misses_a_row_and_has_duplicates_after_failures_alone(
    job: Job, failures: frozenset[int]
) -> None:
    assert Counter(run(job)[-1].sink) == Counter(job.events)
    assert set(run(job, failures)[-1].sink) == set(job.events)


@given(job=jobs)
def test_events_of_a_source_stay_in_order(job: Job) -> None:
    for moment in run(job):
        for state in moment.states.values():
            for source in "ab":
                numbers = [number for name, number in state if name == source]
                assert numbers == list(range(len(numbers)))
