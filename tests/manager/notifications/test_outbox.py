"""Events, notifications of users, and mails to a real mail server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.coded_text import TextTemplate
from bai_services.core.listing import ListQuery
from bai_services.core.notifications.catalogue import EventName
from bai_services.core.notifications.events import (
    KEPT_FOR,
    Audience,
    Event,
    budget_warning,
    session_preempted,
)
from bai_services.core.scheduling.preemption.plan import Rule
from bai_services.core.scheduling.preemption.texts import preemption_text
from bai_services.core.sessions.lifecycle import Event as Change
from bai_services.core.sessions.lifecycle import Result
from bai_services.db.notifications.events import EventStore
from bai_services.db.notifications.fan_out import FanOutStore
from bai_services.db.tables.cluster import agents
from bai_services.db.tables.folders import quota_scopes
from bai_services.db.tables.notifications import notification_events, notification_mails
from tests.testbed.mail_server import MailServerThread
from tests.testbed.manager import SUPERADMIN, Api, World

from .conftest import ORIGIN

USER = "user@example.com"
SMALL = {"cpu": "1", "mem": "1g"}


async def step(world: World) -> None:
    await world.manager.notifications.outbox.step()


async def inbox(world: World, username: str) -> list[tuple[str, str]]:
    caller = await world.caller(username)
    page = await world.manager.notifications.inbox.page(caller, ListQuery(sort=("created_at",)))
    return [(each.event, each.text) for each in page.items]


async def create_session(api: Api, name: str) -> str:
    """Create a session of ``user``; it remains pending, because no scheduler runs."""
    client = await api.client("user")
    return str((await client.post("/sessions", {"name": name, "resources": SMALL}))["id"])


async def configure(world: World, username: str, **fields: Any) -> None:
    caller = await world.caller(username)
    await world.manager.notifications.inbox.update_settings(caller, fields)


def event(world: World, key: str, user_id: str, name: EventName, session: str = "lab") -> Event:
    text = TextTemplate.NOTICE_SESSION_RUNNING.text(name=session)
    audience = Audience(user_id=user_id)
    return Event(key, world.clock(), name, audience, text, "sessions/s1", "default")


@pytest.mark.both_databases
async def test_owner_is_notified_of_the_start_and_the_failure_of_a_session(
    world: World, api: Api, mail_server: MailServerThread
) -> None:
    await step(world)  # notifications are sent only for events after the first step
    await configure(world, "user", channels={"session-failed": ["web", "mail"]})
    first, second = await create_session(api, "lab-one"), await create_session(api, "lab-two")
    for change in (Change.PLACED, Change.DISPATCHED, Change.PREPARED, Change.STARTED):
        await world.manager.lifecycle.apply(first, change)
    await world.manager.lifecycle.apply(second, Change.FAILED, TextTemplate.NOT_PREPARED.text())
    for _ in range(2):
        await step(world)
    assert sorted(await inbox(world, "user")) == [
        ("session-failed", "session lab-two has failed: the agent could not prepare the session"),
        ("session-running", "session lab-one is running"),
    ]
    assert await inbox(world, "user2") == []
    world.clock.advance(seconds=60)
    await step(world)
    await world.manager.mails.step()
    (mail,) = mail_server.to(USER)
    assert mail.subject == "bai-hub: Session has failed"
    assert "session lab-two has failed: the agent could not prepare the session\r\n" in mail.text
    assert f"{ORIGIN}/services/bai/sessions/{second}\r\n" in mail.text
    assert f"{ORIGIN}/services/bai/settings?tab=notifications" in mail.text


async def test_owner_is_notified_of_a_session_that_starts_again(world: World, api: Api) -> None:
    await step(world)
    first, second = await create_session(api, "train-one"), await create_session(api, "train-two")
    lifecycle = world.manager.lifecycle
    for session_id in (first, second):
        for change in (Change.PLACED, Change.DISPATCHED, Change.PREPARED):
            await lifecycle.apply(session_id, change)
    text = TextTemplate.AGENT_LOST_REQUEUED.text(name="a1")
    await lifecycle.apply(first, Change.AGENT_LOST, text, is_requeued_at_end=True)
    # The second session has lost its agent too often, so it does not start again.
    often = TextTemplate.AGENTS_LOST_OFTEN.text(count=6, name="a1")
    await lifecycle.apply(second, Change.AGENT_LOST, often, result=Result.FAILURE)
    await step(world)
    assert await inbox(world, "user") == [
        ("session-requeued", "session train-one starts again, because its agent was lost")
    ]


@pytest.mark.both_databases
async def test_owner_is_notified_when_a_preempted_session_runs_again(
    world: World, api: Api
) -> None:
    await step(world)
    key = await create_session(api, "lab-one")
    lifecycle = world.manager.lifecycle
    start = (Change.PLACED, Change.DISPATCHED, Change.PREPARED, Change.STARTED)
    text = preemption_text(Rule.PRIORITY, "default", 10)
    stopped = TextTemplate.STOPPED_THROUGH_HUB.text()
    for change in start:
        await lifecycle.apply(key, change)
    # Only the cause of the latest stop is notified. When the step runs, the session is running
    # again.
    for stop in (Change.PREEMPTED, Change.AGENT_LOST):
        await lifecycle.apply(key, stop, text, is_requeued_at_end=True)
        await lifecycle.apply(key, Change.EXITED, stopped)
        for change in start:
            await lifecycle.apply(key, change)
    await step(world)
    assert sorted(await inbox(world, "user")) == [
        ("session-requeued", "session lab-one starts again, because its agent was lost"),
        ("session-running", "session lab-one is running"),
        ("session-running", "session lab-one is running"),
        ("session-runs-again", "session lab-one runs again after its preemption"),
    ]
    steps = (await (await api.client("user")).get(f"/sessions/{key}/history"))["items"]
    # The history has the reason of the stop only in the entry of the stop, not in the next one.
    assert [(one["event"], one["reason"]) for one in steps if one["reason"]][:2] == [
        ("preempted", str(text)),
        ("requeued", "returned to the queue"),
    ]


async def test_session_that_its_owner_stops_is_not_reported(world: World, api: Api) -> None:
    await step(world)
    key = await create_session(api, "lab-one")
    for change in (Change.PLACED, Change.DISPATCHED, Change.PREPARED, Change.STARTED):
        await world.manager.lifecycle.apply(key, change)
    await step(world)
    await (await api.client("user")).delete(f"/sessions/{key}")
    await step(world)
    assert [name for name, _ in await inbox(world, "user")] == ["session-running"]


async def test_changes_are_raised_once_whatever_the_order_of_commits(
    world: World, api: Api
) -> None:
    """A manager that is restarted reads the unsettled changes again."""
    await step(world)
    key = await create_session(api, "lab-one")
    await world.manager.lifecycle.apply(key, Change.FAILED, "broken")
    for store in (EventStore(world.manager.database), EventStore(world.manager.database)):
        await store.raise_status_changes(world.clock() - timedelta(seconds=30))
    world.clock.advance(seconds=31)
    later = EventStore(world.manager.database)
    assert await later.raise_status_changes(world.clock() - timedelta(seconds=30)) == 1
    assert await later.raise_status_changes(world.clock()) == 0
    await FanOutStore(world.manager.database).fan_out(world.clock(), sends_mails=False)
    assert await inbox(world, "user") == [("session-failed", "session lab-one has failed: broken")]


@pytest.mark.both_databases
async def test_digest_is_one_mail_in_the_language_and_time_zone_of_the_user(
    world: World, mail_server: MailServerThread
) -> None:
    await configure(
        world,
        "user",
        language="ko",
        time_zone="Asia/Seoul",
        digest="daily",
        digest_time="09:00",
        channels={"session-ended": ["mail"], "session-stops-now": ["mail"]},
    )
    user_id, outbox = await world.user_id("user"), world.manager.notifications.outbox
    world.clock.now = datetime(2026, 11, 26, 3, tzinfo=UTC)
    for number in range(3):
        made = event(world, f"e{number}", user_id, EventName.SESSION_ENDED, f"s{number}")
        await outbox.raise_event(made)
    urgent = TextTemplate.NOTICE_SESSION_STOPS.text(
        TextTemplate.IDLE_TIMEOUT.text(maximum_seconds=3600, name="default"),
        name="lab",
        ends_at="2026-11-26T03:05:00+00:00",
    )
    audience = Audience(user_id=user_id)
    name = EventName.SESSION_STOPS_NOW
    await outbox.raise_event(Event("stop", world.clock(), name, audience, urgent))
    await step(world)
    await world.manager.mails.step()
    (mail,) = mail_server.to(USER)
    assert mail.subject == "bai-hub: 세션 곧 중지"
    assert (
        "lab 세션이 2026-11-26 12:05 (Asia/Seoul)에 중지됩니다: 사용하지 않는 시간은 최대 1h"
        in mail.text
    )
    world.clock.now = datetime(2026, 11, 26, 23, 59, tzinfo=UTC)
    await step(world)
    assert len(mail_server.to(USER)) == 1
    world.clock.now = datetime(2026, 11, 27, 0, 0, tzinfo=UTC)
    for _ in range(2):
        await step(world)
    await world.manager.mails.step()
    assert len(mail_server.to(USER)) == 2
    digest = mail_server.to(USER)[-1]
    assert digest.subject == "bai-hub: 알림"
    assert [f"s{number} 세션이 실행 중입니다" in digest.text for number in range(3)] == [True] * 3


async def test_hostile_names_break_neither_mails_nor_their_headers(
    world: World, mail_server: MailServerThread
) -> None:
    await configure(world, "user", channels={"session-ended": ["mail"]})
    name = "x\r\nBcc: all@example.org\u2028{brand}{0}%s"
    made = event(world, "e", await world.user_id("user"), EventName.SESSION_ENDED, name)
    await world.manager.notifications.outbox.raise_event(made)
    await step(world)
    world.clock.advance(minutes=2)
    await step(world)
    await world.manager.mails.step()
    (mail,) = mail_server.to(USER)
    assert mail.recipients == ["user@example.com"] and mail.message["Bcc"] is None
    assert "session x Bcc: all@example.org {brand}{0}%s is running" in mail.text


async def test_condition_notifies_superadmins_once(world: World) -> None:
    database, lost_at = world.manager.database, world.clock()
    async with database.write() as tx:
        group = await tx.scalar(sa.text("SELECT name FROM resource_groups LIMIT 1"))
        facts = {"resource_group": group, "engine": "process", "architecture": "x86_64"}
        facts |= {"status_changed_at": world.clock(), "last_heartbeat_at": world.clock()}
        row = {"id": "gone", "created_at": world.clock(), "status": "LOST", "version": "1"}
        await tx.execute(agents.insert().values(**facts, **row, facts={}))
    for _ in range(2):
        await step(world)
        world.clock.advance(seconds=31)
    assert [text for name, text in await inbox(world, "admin") if name == "agent-lost"] == [
        f"agent gone has sent no heartbeat since {lost_at.isoformat()}"
    ]
    assert await inbox(world, "user") == []


async def test_nearly_full_quota_is_reported_to_its_user(world: World) -> None:
    values = {"host": "local", "scope": f"user:{await world.user_id('user')}"}
    values |= {"override_bytes": 100 * 2**30, "used_bytes": 95 * 2**30}
    async with world.manager.database.write() as tx:
        await tx.execute(quota_scopes.insert().values(values))
    await step(world)
    assert await inbox(world, "user") == [
        ("quota-nearly-full", "storage host local: 95% of the quota is used (95g of 100g)")
    ]


async def test_announcement_and_maintenance_reach_their_audience(world: World) -> None:
    operations = world.manager.operations
    domain = {"title": "Downtime", "audience": "domain", "target": "acme"}
    await operations.announcements.create(SUPERADMIN, domain)
    await operations.maintenances.create(
        SUPERADMIN, {"reason": "new disks", "starts_at": datetime(2126, 1, 1, tzinfo=UTC)}
    )
    await step(world)
    await step(world)
    maintenance = ("maintenance-planned", "maintenance from 2126-01-01T00:00:00+00:00: new disks")
    assert await inbox(world, "user") == [maintenance]
    assert sorted(await inbox(world, "acme-user")) == [("announcement", "Downtime"), maintenance]


async def test_shared_folder_is_reported_to_the_invitee(world: World, api: Api) -> None:
    await world.manager.folders.start()
    user = await api.client("user")
    folder = await user.post("/vfolders", {"name": "data"})
    for permission in ("ro", "rw"):  # the second request changes the invitation
        await user.put(f"/vfolders/{folder['id']}/grants/user2", {"permission": permission})
    await step(world)
    assert await inbox(world, "user2") == [
        ("folder-shared", "user shares the folder data with you (ro)")
    ]


async def test_preemption_and_budget_are_reported_once(world: World) -> None:
    user_id, now = await world.user_id("user"), world.clock()
    reason = TextTemplate.STOPPED.text()
    project_id = await world.project_id()
    made = [
        session_preempted("s1", now, user_id, "default", "lab", reason),
        budget_warning(project_id, now, "default", "research", "2026-11", 90, spent_percent=94),
    ]
    for each in (*made, *made):
        await world.manager.notifications.outbox.raise_event(each)
    await step(world)
    assert sorted(await inbox(world, "user")) == [
        ("budget-warning", "project research has used 94% of its budget"),
        ("session-preempted", "session lab was stopped: stopped"),
    ]


async def test_old_events_are_removed_with_their_notifications(world: World) -> None:
    user_id = await world.user_id("user")
    made = event(world, "e", user_id, EventName.SESSION_ENDED)
    await world.manager.notifications.outbox.raise_event(made)
    await step(world)
    assert len(await inbox(world, "user")) == 1
    world.clock.advance(seconds=KEPT_FOR.total_seconds() + 1)
    await step(world)
    assert await inbox(world, "user") == []
    async with world.manager.database.read() as tx:
        assert "e" not in set(await tx.scalars(sa.select(notification_events.c.key)))


class Killed(Exception):
    pass


@pytest.mark.both_databases
@pytest.mark.parametrize("statements", range(1, 8))
async def test_manager_that_is_killed_loses_and_repeats_nothing(
    world: World, statements: int, mail_server: MailServerThread
) -> None:
    """A step fails at its n-th write statement; the next steps complete its work."""
    await configure(world, "user", channels={"session-ended": ["web", "mail"]})
    user_id = await world.user_id("user")
    made = [event(world, f"e{n}", user_id, EventName.SESSION_ENDED, f"s{n}") for n in range(3)]
    for each in made:
        await world.manager.notifications.outbox.raise_event(each)
    world.clock.advance(minutes=1)
    left = [statements]

    def fail(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.split()[0] in ("INSERT", "UPDATE", "DELETE"):
            left[0] -= 1
            if left[0] == 0:
                raise Killed

    sa.event.listen(sa.Engine, "before_cursor_execute", fail)
    try:
        for _ in range(2):
            await step(world)
            world.clock.advance(minutes=1)
    except Killed:
        pass
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", fail)
    for _ in range(3):
        await step(world)
        world.clock.advance(minutes=1)
    await world.manager.mails.step()
    assert len(await inbox(world, "user")) == 3
    (mail,) = mail_server.to(USER)
    assert [f"session s{n} is running" in mail.text for n in range(3)] == [True] * 3
    async with world.manager.database.read() as tx:
        assert await tx.scalar(sa.select(sa.func.count()).select_from(notification_mails)) == 0
