"""Webhooks against a real HTTP server: signature, scopes, retries, suspension and kills."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery
from bai_services.core.notifications.catalogue import EventName
from bai_services.core.notifications.events import Audience, Event
from bai_services.core.notifications.records import CreatedWebhook, WebhookDelivery
from bai_services.core.notifications.webhooks import SUSPENDED_AFTER_FAILURES
from bai_services.core.sessions.callbacks import signature
from bai_services.db.tables.accounts import users
from bai_services.db.tables.notifications import webhooks
from bai_services.manager.notifications import delivery
from tests.testbed.manager import World, manager_on
from tests.testbed.receiver import Receiver
from tests.testbed.wait import wait_until_async

from .conftest import LOCAL_NETWORK

ENDED = [EventName.SESSION_ENDED]


async def create(world: World, username: str, receiver: Receiver, **spec: Any) -> CreatedWebhook:
    caller = await world.caller(username)
    service = world.manager.notifications.webhooks
    return await service.create(caller, {"url": f"{receiver.url}?token=hidden", **spec})


async def raise_ended(world: World, username: str, key: str = "e1") -> None:
    """Raise the event that a session of a user has ended, and create its deliveries."""
    text = TextTemplate.NOTICE_SESSION_ENDED.text(TextTemplate.EXITED.text(), name="lab")
    caller = await world.caller(username)
    audience = Audience(user_id=caller.user_id)
    now, name = world.clock(), EventName.SESSION_ENDED
    made = Event(key, now, name, audience, text, "sessions/s1", caller.domain)
    await world.manager.notifications.outbox.raise_event(made)
    await world.manager.notifications.outbox.step()


async def deliver(world: World) -> None:
    """Make all deliveries that are due now."""
    deliveries = world.manager.notifications.deliveries
    await deliveries.step()
    await deliveries.drain()


async def log(world: World, username: str, key: str) -> list[WebhookDelivery]:
    caller = await world.caller(username)
    page = await world.manager.notifications.webhooks.deliveries(caller, key, ListQuery())
    return list(page.items)


@pytest.mark.both_databases
async def test_delivery_is_signed_and_in_the_log(world: World, receiver: Receiver) -> None:
    hook = await create(world, "admin", receiver, scope="all", events=ENDED)
    await raise_ended(world, "user")
    await deliver(world)
    (call,) = receiver.calls
    (entry,) = await log(world, "admin", hook.id)
    assert call.content == {
        "delivery": entry.id,
        "event": "session-ended",
        "event_id": entry.event_id,
        "at": world.clock().isoformat(),
        "title": "Session has ended",
        "text": "session lab has ended: exited",
        "coded": {
            "code": "notice-session-ended",
            "values": {"name": "lab"},
            "parts": [{"code": "exited", "values": {}, "parts": []}],
        },
        "link": "https://hub.example.org/services/bai/sessions/s1",
        "domain": "default",
        "user": "user",
    }
    timestamp = call.headers["Bai-Timestamp"]
    assert call.headers["Bai-Signature"] == signature(hook.secret, int(timestamp), call.body)
    assert call.headers["Bai-Delivery"] == entry.id
    assert (entry.status, entry.attempts, entry.next_at) == ("delivered", 1, None)
    await deliver(world)
    assert len(receiver.calls) == 1


async def test_slack_webhook_receives_a_text_in_its_language(
    world: World, receiver: Receiver
) -> None:
    fields = {"kind": "slack", "language": "ja", "events": ENDED}
    await create(world, "admin", receiver, scope="all", **fields)
    await raise_ended(world, "user")
    await deliver(world)
    link = "<https://hub.example.org/services/bai/sessions/s1>"
    text = f"*セッションが終了*\nセッション lab が終了しました: 終了しました\n{link}"
    assert json.loads(receiver.calls[0].body) == {"text": text}


async def test_webhook_of_a_domain_receives_only_what_its_administrators_may_read(
    world: World, receiver: Receiver
) -> None:
    await create(world, "domain-admin", receiver, scope="domain", domain="default", events=ENDED)
    for username in ("acme-user", "admin", "user"):
        await raise_ended(world, username, f"e-{username}")
        await deliver(world)
    assert [call.content["user"] for call in receiver.calls] == ["user"]


async def test_own_webhook_receives_only_events_for_the_channel_webhook(
    world: World, receiver: Receiver
) -> None:
    for username in ("user", "user2"):
        await create(world, username, receiver)
    user = await world.caller("user")
    inbox = world.manager.notifications.inbox
    await raise_ended(world, "user")
    await inbox.update_settings(user, {"channels": {"session-ended": ["webhook"]}})
    await raise_ended(world, "user", "e2")
    await deliver(world)
    assert len(receiver.calls) == 1
    page = await inbox.page(user, ListQuery())
    assert len(page.items) == 1  # the first event, with the default channels


async def test_quiet_hours_delay_own_webhooks(world: World, receiver: Receiver) -> None:
    await create(world, "user", receiver)
    user, now = await world.caller("user"), world.clock()
    fields = {
        "channels": {"session-ended": ["webhook"]},
        "quiet_starts": f"{now - timedelta(hours=1):%H:%M}",
        "quiet_ends": f"{now + timedelta(hours=1):%H:%M}",
    }
    await world.manager.notifications.inbox.update_settings(user, fields)
    await raise_ended(world, "user")
    await deliver(world)
    assert receiver.calls == []
    world.clock.advance(hours=1)
    await deliver(world)
    assert len(receiver.calls) == 1


@pytest.mark.both_databases
async def test_failed_delivery_is_repeated_with_the_same_id(
    world: World, receiver: Receiver
) -> None:
    hook = await create(world, "admin", receiver, scope="all", events=ENDED)
    receiver.answers.extend([500, 302, 204])
    await raise_ended(world, "user")
    for _ in range(3):
        await deliver(world)
        world.clock.advance(seconds=20)
    assert len({call.headers["Bai-Delivery"] for call in receiver.calls}) == 1
    assert len(receiver.calls) == 3
    (entry,) = await log(world, "admin", hook.id)
    assert (entry.status, entry.attempts) == ("delivered", 3)


@pytest.mark.both_databases
async def test_failing_webhook_is_suspended_until_a_test_call_succeeds(
    world: World, receiver: Receiver
) -> None:
    hook = await create(world, "admin", receiver, scope="all", events=ENDED)
    receiver.answers.extend([500] * (SUSPENDED_AFTER_FAILURES + 1))
    await raise_ended(world, "user")
    for _ in range(SUSPENDED_AFTER_FAILURES):
        await deliver(world)
        world.clock.advance(minutes=30)
    admin = await world.caller("admin")
    service = world.manager.notifications.webhooks
    shown = await service.get(admin, hook.id)
    assert shown.suspended_at is not None and shown.failures == SUSPENDED_AFTER_FAILURES
    assert shown.last_error == "the receiver responded with status 500"
    (entry,) = await log(world, "admin", hook.id)
    assert (entry.status, entry.last_error) == ("given-up", "the webhook was suspended")
    await raise_ended(world, "user", "e2")
    assert len(await log(world, "admin", hook.id)) == 1
    assert not (await service.test(admin, hook.id)).is_delivered
    result = await service.test(admin, hook.id)
    assert (result.is_delivered, result.error) == (True, "")
    assert (await service.get(admin, hook.id)).suspended_at is None


async def test_manager_that_is_killed_after_the_call_repeats_it_with_the_same_id(
    world: World, receiver: Receiver, database_url: str, tmp_path: Path
) -> None:
    await create(world, "admin", receiver, scope="all", events=ENDED)
    await raise_ended(world, "user")
    receiver.may_respond.clear()
    await world.manager.notifications.deliveries.step()
    await wait_until_async(lambda: receiver.calls, 30, "a call")
    await world.manager.stop()  # cancels the call, as a kill would
    receiver.may_respond.set()
    options = {"callback_targets": LOCAL_NETWORK, "is_migrated": True}
    async with manager_on(database_url, tmp_path, world.clock, **options) as manager:
        await deliver(World(manager, world.clock))
    assert len(receiver.calls) == 2
    assert len({call.headers["Bai-Delivery"] for call in receiver.calls}) == 1


async def test_webhooks_are_private_and_their_number_is_limited(
    world: World, receiver: Receiver
) -> None:
    service = world.manager.notifications.webhooks
    hook = await create(world, "user", receiver)
    for username in ("user2", "admin", "domain-admin"):
        with pytest.raises(NotFound):
            await service.get(await world.caller(username), hook.id)
    with pytest.raises(Forbidden):
        await create(world, "user", receiver, scope="all", events=ENDED)
    with pytest.raises(NotFound):
        await create(world, "domain-admin", receiver, scope="domain", domain="acme")
    for _ in range(4):
        await create(world, "user", receiver)
    with pytest.raises(Conflict, match="already 5 webhooks"):
        await create(world, "user", receiver)


async def test_url_is_neither_stored_nor_shown_in_plain_text(
    world: World, receiver: Receiver
) -> None:
    hook = await create(world, "user", receiver)
    assert hook.host == "127.0.0.1" and "hidden" not in repr(hook)
    async with world.manager.database.read() as tx:
        row = (await tx.execute(sa.select(webhooks))).one()
    assert "hidden" not in str(row) and hook.secret not in str(row)


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://10.0.0.1/"},
        {"url": "http://[::1]/"},
        {"url": "ftp://example.org/"},
        {"url": "https://user:password@example.org/"},
        {"url": ""},
        {"events": ["lunch"]},
        {"language": "xx"},
        {"scope": "domain"},
        {"scope": "all", "domain": "default"},
    ],
)
async def test_invalid_webhook_is_rejected(
    world: World, receiver: Receiver, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        await create(world, "admin", receiver, **fields)


async def test_webhooks_take_turns(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MAX_CONCURRENT_CALLS", 1)
    fields = {"channels": {"session-ended": ["webhook"]}}
    inbox = world.manager.notifications.inbox
    await create(world, "user", receiver)
    await inbox.update_settings(await world.caller("user"), fields)
    for key in ("e1", "e2", "e3"):
        await raise_ended(world, "user", key)
        world.clock.advance(seconds=1)
    await create(world, "user2", receiver)
    await inbox.update_settings(await world.caller("user2"), fields)
    await raise_ended(world, "user2", "e4")
    for _ in range(4):
        await deliver(world)
    assert [call.content["user"] for call in receiver.calls] == ["user", "user2", "user", "user"]


async def test_webhook_of_an_inactive_user_is_not_called(world: World, receiver: Receiver) -> None:
    await create(world, "user", receiver)
    user = await world.caller("user")
    fields = {"channels": {"session-ended": ["webhook"]}}
    await world.manager.notifications.inbox.update_settings(user, fields)
    await raise_ended(world, "user")
    admin = await world.caller("admin")
    await world.manager.accounts.users.update(admin, "user", {"status": "inactive"})
    await create(world, "user2", receiver)
    await world.manager.notifications.inbox.update_settings(await world.caller("user2"), fields)
    await raise_ended(world, "user2", "e2")
    await deliver(world)
    await deliver(world)
    assert [call.content["user"] for call in receiver.calls] == ["user2"]


async def test_domain_webhook_receives_nothing_of_an_inactive_superadmin(
    world: World, receiver: Receiver
) -> None:
    await create(world, "domain-admin", receiver, scope="domain", domain="default", events=ENDED)
    superadmin = (await world.caller("admin")).user_id
    async with world.manager.database.write() as tx:
        await tx.execute(sa.update(users).where(users.c.id == superadmin).values(status="inactive"))
    text = TextTemplate.NOTICE_SESSION_ENDED.text(TextTemplate.EXITED.text(), name="lab")
    now, name = world.clock(), EventName.SESSION_ENDED
    made = Event("e1", now, name, Audience(user_id=superadmin), text, "sessions/s1", "default")
    await world.manager.notifications.outbox.raise_event(made)
    await world.manager.notifications.outbox.step()
    await raise_ended(world, "user", "e2")
    await deliver(world)
    await deliver(world)
    assert [call.content["user"] for call in receiver.calls] == ["user"]
