"""Callbacks of sessions: one signed call per status change, in order, with retries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bai_services.client import Client, Keypair
from bai_services.core import errors
from bai_services.core.sessions.callbacks import MAX_ATTEMPTS, AllowedTargets, secret_of, signature
from bai_services.db.database import Database
from bai_services.manager.manager import Manager
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, manager_on
from tests.testbed.receiver import Receiver, serve_receiver
from tests.testbed.wait import wait_until_async

from .test_sessions import create_running_session, wait_for_status

LOCAL_NETWORK = AllowedTargets.parse("", "127.0.0.1/32")
SMALL = {"cpu": "1", "mem": "1g"}
TO_RUNNING = ["SCHEDULED", "PREPARING", "PREPARED", "RUNNING"]

Session = dict[str, Any]


@pytest.fixture
async def manager(database_url: str, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Manager]:
    """A manager whose callbacks may call this machine. The fixture starts no background loops."""
    async with manager_on(database_url, tmp_path, clock, callback_targets=LOCAL_NETWORK) as made:
        yield made


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with serve_receiver() as made:
        yield made


async def create_session(client: Client, name: str, url: str, **body: Any) -> Session:
    spec = {"name": name, "resources": SMALL, "callback_url": url, **body}
    return dict(await client.post("/sessions", spec))


async def callback_of(client: Client, name: str) -> Session:
    return dict((await client.get(f"/sessions/{name}"))["callback"])


async def statuses_after(receiver: Receiver, count: int) -> list[str]:
    """Wait until the receiver has at least ``count`` calls; return the statuses of all calls."""
    await wait_until_async(lambda: len(receiver.calls) >= count, 60, f"{count} calls")
    return receiver.statuses


async def wait_for_callback(client: Client, name: str, **facts: Any) -> Session:
    """Wait until the callback of a session has these values; return the callback."""

    async def matching_state() -> Session | None:
        state = await callback_of(client, name)
        return state if facts.items() <= state.items() else None

    text = f"the callback of {name} to have {facts}"
    return dict(await wait_until_async(matching_state, 60, text))


async def test_every_status_change_is_delivered_in_order_and_signed(
    api: Api, agent: FakeAgent, user: Client, receiver: Receiver
) -> None:
    session = await create_running_session(api, agent, "lab1", callback_url=receiver.url)
    assert await statuses_after(receiver, 4) == TO_RUNNING
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": 0, "log": ""})
    assert await statuses_after(receiver, 5) == [*TO_RUNNING, "TERMINATED"]
    state = await wait_for_callback(user, "lab1", is_open=False)
    assert (state["delivered"], state["given_up"], state["last_error"]) == (5, 0, "")
    history = (await user.get(f"/sessions/{session['id']}/history"))["items"]
    keys = (await user.get("/me"))["keypairs"]
    secret = (await user.get(f"/keypairs/{keys[0]}/callback-secret"))["callback_secret"]
    for call, step in zip(receiver.calls, history, strict=True):
        content = call.content
        assert content["event"] == "session.status"
        assert (content["session_id"], content["name"]) == (session["id"], "lab1")
        assert (content["from_status"], content["status"]) == (
            step["from_status"],
            step["to_status"],
        )
        assert call.headers["Content-Type"] == "application/json"
        assert call.headers["Bai-Delivery"] == str(content["delivery"])
        stamp = int(call.headers["Bai-Timestamp"])
        assert call.headers["Bai-Signature"] == signature(secret, stamp, call.body)
    assert receiver.calls[-1].content["exit_code"] == 0


async def test_failed_call_is_retried_before_later_calls_are_sent(
    api: Api, agent: FakeAgent, user: Client, receiver: Receiver, clock: MovableClock
) -> None:
    receiver.answers.extend([500, 503])
    await create_running_session(api, agent, "lab1", callback_url=receiver.url)
    state = await wait_for_callback(user, "lab1", tries=1)
    assert state["last_error"] == "the receiver responded with status 500"
    assert state["next_at"] is not None
    assert receiver.statuses == ["SCHEDULED"], "a later status was delivered before an earlier one"
    for tries in (2, 0):
        clock.advance(seconds=5)
        api.world.manager.sessions.callbacks.wake()
        if tries:
            await wait_for_callback(user, "lab1", tries=tries)
    assert await statuses_after(receiver, 6) == ["SCHEDULED", "SCHEDULED", *TO_RUNNING]
    state = await wait_for_callback(user, "lab1", delivered=4)
    assert (state["tries"], state["last_error"], state["is_open"]) == (0, "", True)


async def test_undeliverable_call_is_skipped_after_the_maximum_number_of_attempts(
    api: Api, agent: FakeAgent, user: Client, receiver: Receiver, clock: MovableClock
) -> None:
    receiver.answers.extend([500] * MAX_ATTEMPTS)
    await create_running_session(api, agent, "lab1", callback_url=receiver.url)
    for tries in range(1, MAX_ATTEMPTS):
        state = await wait_for_callback(user, "lab1", tries=tries)
        clock.now = datetime.fromisoformat(state["next_at"])
        api.world.manager.sessions.callbacks.wake()
    state = await wait_for_callback(user, "lab1", delivered=3)
    assert (state["given_up"], state["is_open"], state["tries"]) == (1, True, 0)
    assert receiver.statuses == ["SCHEDULED"] * MAX_ATTEMPTS + TO_RUNNING[1:]


async def test_unresponsive_receiver_does_not_delay_other_users(
    api: Api, agent: FakeAgent, user: Client, receiver: Receiver
) -> None:
    admin = await api.client("admin")
    async with serve_receiver() as slow:
        slow.may_respond.clear()
        waiting = [await create_session(user, f"slow-{n}", slow.url, priority=0) for n in range(5)]
        for session in waiting:
            await user.delete(f"/sessions/{session['id']}")
        await wait_until_async(lambda: len(slow.calls) == 2, 60, "two calls for one user")
        other = await create_session(admin, "quick", receiver.url)
        await admin.delete(f"/sessions/{other['id']}")
        statuses = await statuses_after(receiver, 1)
        assert statuses[-1] in ("CANCELLED", "SCHEDULED")
        assert len(slow.calls) == 2
        slow.may_respond.set()
        for session in waiting:
            await wait_for_callback(user, session["id"], is_open=False)


async def test_callbacks_resume_after_a_restart(
    api: Api, user: Client, receiver: Receiver, clock: MovableClock, database_url: str
) -> None:
    first = api.world.manager
    session = await create_session(user, "lab1", receiver.url)
    await user.delete(f"/sessions/{session['id']}")
    assert await first.scheduling.scheduler.lease.hold() is not None
    second = Manager(first.settings, Database(database_url), clock)
    try:
        await second.sessions.callbacks.step()
        assert receiver.calls == [], "a standby manager sent a callback"
        await first.scheduling.scheduler.lease.stop()
        await second.sessions.callbacks.step()
        assert await statuses_after(receiver, 1) == ["CANCELLED"]
        state = await wait_for_callback(user, session["id"], is_open=False)
        assert state["delivered"] == 1
    finally:
        await second.stop()


async def test_callback_url_outside_the_allowed_networks_is_rejected(
    api: Api, user: Client
) -> None:
    for url in ("http://10.0.0.1/", "http://169.254.169.254/latest", "file:///etc/passwd"):
        with pytest.raises(errors.InvalidRequest, match="callback_url") as refused:
            await create_session(user, "lab1", url)
        assert refused.value.details["field"] == "callback_url"
    with pytest.raises(errors.InvalidRequest, match="callback_url"):
        await user.post("/bulk-sessions", {"sessions": [{"name": "lab2", "callback_url": "x"}]})
    assert (await user.get("/sessions"))["items"] == []


async def test_template_and_repeated_request_keep_the_callback_url(
    api: Api, user: Client, receiver: Receiver
) -> None:
    request = {"resources": SMALL, "callback_url": receiver.url}
    await user.post("/session-templates", {"name": "notified", "request": request})
    session = await user.post("/sessions", {"name": "lab1", "template": "notified"})
    assert session["callback"]["url"] == receiver.url
    again = await user.post("/sessions", {"name": "lab1", "template": "notified"})
    assert again["id"] == session["id"]
    with pytest.raises(errors.AlreadyExists):
        await create_session(user, "lab1", receiver.url + "2")
    plain = await user.post("/sessions", {"name": "lab2", "resources": SMALL})
    assert plain["callback"] is None


async def test_only_the_owner_may_read_the_callback_secret(api: Api, user: Client) -> None:
    (key, *_) = (await user.get("/me"))["keypairs"]
    before = await user.get(f"/keypairs/{key}/callback-secret")
    assert before["access_key"] == key
    with pytest.raises(errors.Forbidden):
        await (await api.client("admin")).get(f"/keypairs/{key}/callback-secret")
    changed = await user.patch(f"/keypairs/{key}", {"new_secret": True})
    anew = Client(api.url, Keypair(key, changed["secret_key"]))
    try:
        after = await anew.get(f"/keypairs/{key}/callback-secret")
    finally:
        await anew.close()
    assert after["callback_secret"] == secret_of(changed["secret_key"]) != before["callback_secret"]


async def test_session_status_does_not_wait_for_callbacks(
    api: Api, agent: FakeAgent, user: Client, receiver: Receiver
) -> None:
    receiver.may_respond.clear()
    session = await create_running_session(api, agent, "lab1", callback_url=receiver.url)
    assert (await wait_for_status(user, session["id"], "RUNNING"))["callback"]["delivered"] == 0
    receiver.may_respond.set()
    assert await statuses_after(receiver, 4) == TO_RUNNING
