"""Event streams: all status changes in order, changed positions once each."""

from __future__ import annotations

from bai_services.core.sessions.lifecycle import Status
from bai_services.manager.events import POSITION, QUEUE_LENGTH, Change, Events, Subscription


def change(number: int, owner: str = "u1", kind: str = "status") -> Change:
    return Change(f"s{number}", Status.PENDING, kind, owner, "p", "d")


def moved(*numbers: int, owner: str = "u1") -> dict[str, Change]:
    return {f"s{n}": change(n, owner, POSITION) for n in numbers}


async def received(subscription: Subscription) -> list[tuple[str, str]]:
    found = []
    while (one := await subscription.get(0)) is not None:
        found.append((one.session_id, one.kind))
    return found


def everybody(change: Change) -> bool:
    return True


async def test_steps_come_in_order_and_who_moved_after_them_once() -> None:
    events = Events()
    with events.follow(None, everybody) as listener:
        events.publish_moved(moved(1, 2))
        events.publish(change(3))
        events.publish_moved(moved(2, 1))
        events.publish(change(1, kind="reasons"))
        assert await received(listener) == [
            ("s3", "status"), ("s1", "reasons"), ("s1", POSITION), ("s2", POSITION),
        ]  # fmt: skip
        assert await received(listener) == []


async def test_thousands_that_move_on_push_no_step_out() -> None:
    events = Events()
    with events.follow(None, everybody) as listener:
        events.publish(change(0))
        events.publish_moved(moved(*range(10_000)))
        found = await received(listener)
    assert found[0] == ("s0", "status")
    assert len(found) == 10_001


async def test_who_is_far_behind_loses_the_oldest_steps() -> None:
    events = Events()
    with events.follow(None, everybody) as listener:
        for n in range(QUEUE_LENGTH + 1):
            events.publish(change(n))
        assert (await received(listener))[0] == ("s1", "status")


async def test_nobody_hears_of_others_and_nobody_is_asked_twice() -> None:
    events, asked = Events(), []

    def is_mine(change: Change) -> bool:
        asked.append(change.owner_id)
        return change.owner_id == "u1"

    with events.follow(None, is_mine) as listener:
        for _ in range(2):
            events.publish_moved(moved(1, 2) | moved(3, 4, owner="u2"))
            events.publish(change(5, "u2"))
        assert await received(listener) == [("s1", POSITION), ("s2", POSITION)]
    assert sorted(asked) == ["u1", "u2"]


async def test_one_session_is_followed_alone() -> None:
    events = Events()
    with events.follow("s2", everybody) as listener:
        events.publish_moved(moved(1, 2, 3))
        events.publish(change(1))
        assert await received(listener) == [("s2", POSITION)]


async def test_who_waits_for_steps_only_does_not_follow() -> None:
    events = Events()
    with events.subscribe() as listener:
        assert not events.is_followed
        events.publish_moved(moved(1))
        events.publish(change(1))
        assert await received(listener) == [("s1", "status")]
        with events.follow(None, everybody):
            assert events.is_followed
    assert not events.is_followed
