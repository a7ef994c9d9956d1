"""Clocks: the wall clock may be set back, and waits are not affected."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.clock import (
    FIRST_MOMENT,
    LAST_MOMENT,
    SystemClock,
    VirtualClock,
    to_datetime,
    to_micros,
    to_text,
)


def test_a_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock.now() == clock.now() == to_micros(datetime(2026, 1, 1, tzinfo=UTC))
    clock.advance(timedelta(seconds=5))
    clock.sleep(1)
    assert to_datetime(clock.now()) == datetime(2026, 1, 1, 0, 0, 5, 1, tzinfo=UTC)


def test_waiting_time_never_goes_back_with_the_wall() -> None:
    clock = VirtualClock(0)
    clock.advance(timedelta(seconds=5))
    before = clock.monotonic()
    clock.advance(timedelta(hours=-1))
    assert clock.monotonic() == before
    assert clock.now() < 0


def test_the_system_clock_counts_up() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()


def test_a_moment_beyond_the_years_1_to_9999_is_the_nearest_in_them() -> None:
    assert to_datetime(FIRST_MOMENT - 1) == datetime.min.replace(tzinfo=UTC)
    assert to_datetime(LAST_MOMENT + 1) == datetime.max.replace(tzinfo=UTC)
    assert to_datetime(FIRST_MOMENT + 1) == datetime.min.replace(microsecond=1, tzinfo=UTC)


def test_people_read_a_year_with_four_digits() -> None:
    assert to_text(FIRST_MOMENT) == "0001-01-01 00:00:00Z"
    assert to_text(-1) == "1969-12-31 23:59:59Z"
