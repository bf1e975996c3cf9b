"""Event streams: status changes in order, then one event per session whose position changed."""

from __future__ import annotations

from bai_services.core.sessions.lifecycle import Status
from bai_services.manager.events import POSITION, QUEUE_LENGTH, Change, Events, Subscription


def change(number: int, owner: str = "u1", kind: str = "status") -> Change:
    return Change(f"s{number}", Status.PENDING, kind, owner, "p", "d")


def position_changes(*numbers: int, owner: str = "u1") -> dict[str, Change]:
    return {f"s{n}": change(n, owner, POSITION) for n in numbers}


async def received_changes(subscription: Subscription) -> list[tuple[str, str]]:
    received = []
    while (one := await subscription.get(0)) is not None:
        received.append((one.session_id, one.kind))
    return received


def every_change(change: Change) -> bool:
    return True


async def test_status_changes_come_in_order_before_one_event_per_position() -> None:
    events = Events()
    with events.follow(None, every_change) as subscription:
        events.publish_positions(position_changes(1, 2))
        events.publish(change(3))
        events.publish_positions(position_changes(2, 1))
        events.publish(change(1, kind="reasons"))
        assert await received_changes(subscription) == [
            ("s3", "status"), ("s1", "reasons"), ("s1", POSITION), ("s2", POSITION),
        ]  # fmt: skip
        assert await received_changes(subscription) == []


async def test_many_changed_positions_displace_no_status_change() -> None:
    events = Events()
    with events.follow(None, every_change) as subscription:
        events.publish(change(0))
        events.publish_positions(position_changes(*range(10_000)))
        received = await received_changes(subscription)
    assert received[0] == ("s0", "status")
    assert len(received) == 10_001


async def test_slow_subscriber_loses_the_oldest_status_changes() -> None:
    events = Events()
    with events.follow(None, every_change) as subscription:
        for n in range(QUEUE_LENGTH + 1):
            events.publish(change(n))
        assert (await received_changes(subscription))[0] == ("s1", "status")


async def test_subscriber_gets_only_permitted_changes_and_permissions_are_cached() -> None:
    events, checked_owners = Events(), []

    def is_mine(change: Change) -> bool:
        checked_owners.append(change.owner_id)
        return change.owner_id == "u1"

    with events.follow(None, is_mine) as subscription:
        for _ in range(2):
            events.publish_positions(position_changes(1, 2) | position_changes(3, 4, owner="u2"))
            events.publish(change(5, "u2"))
        assert await received_changes(subscription) == [("s1", POSITION), ("s2", POSITION)]
    assert sorted(checked_owners) == ["u1", "u2"]


async def test_subscription_to_a_single_session_gets_only_its_changes() -> None:
    events = Events()
    with events.follow("s2", every_change) as subscription:
        events.publish_positions(position_changes(1, 2, 3))
        events.publish(change(1))
        assert await received_changes(subscription) == [("s2", POSITION)]


async def test_internal_subscription_gets_no_positions() -> None:
    events = Events()
    with events.subscribe() as subscription:
        assert not events.is_followed
        events.publish_positions(position_changes(1))
        events.publish(change(1))
        assert await received_changes(subscription) == [("s1", "status")]
        with events.follow(None, every_change):
            assert events.is_followed
    assert not events.is_followed
