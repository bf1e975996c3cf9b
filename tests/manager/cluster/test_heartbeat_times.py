"""Silence of agents, independent of the clocks of managers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bai_services.manager.cluster.heartbeat_times import HeartbeatTimes

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Monotonic:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_silence_begins_with_the_received_heartbeat() -> None:
    clock = Monotonic()
    times = HeartbeatTimes(clock)
    times.receive("a1", AT)
    clock.now += 30
    assert times.silent_seconds("a1", AT) == 30.0
    times.receive("a1", AT + timedelta(seconds=5))
    assert times.silent_seconds("a1", AT + timedelta(seconds=5)) == 0.0


def test_heartbeat_of_another_manager_counts_from_the_time_it_is_read() -> None:
    clock = Monotonic()
    times = HeartbeatTimes(clock)
    # The result must be the same if the clock of the other manager is an hour behind or ahead.
    for error in (timedelta(hours=-1), timedelta(hours=1)):
        assert times.silent_seconds("a1", AT + error) == 0.0
        clock.now += 10
        assert times.silent_seconds("a1", AT + error) == 10.0
    times.receive("a1", AT)
    assert times.silent_seconds("a1", AT + timedelta(seconds=1)) == 0.0


def test_silence_is_known_after_the_deadline_but_the_agent_is_not_counted() -> None:
    clock = Monotonic()
    times = HeartbeatTimes(clock)
    times.receive("a1", AT)
    times.receive("a2", AT)
    clock.now += 30
    times.receive("a2", AT + timedelta(seconds=30))
    clock.now += 20
    times.clean_up(40)
    assert times.count == 1
    assert times.silent_seconds("a1", AT) == 50.0


def test_silence_is_measured_from_zero_after_forget() -> None:
    clock = Monotonic()
    times = HeartbeatTimes(clock)
    times.receive("a1", AT)
    clock.now += 600
    times.forget()
    assert times.silent_seconds("a1", AT) == 0.0
