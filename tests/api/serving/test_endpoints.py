"""Endpoints over REST: replicas, rollouts, tokens, what gateways receive, and permissions."""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import web

from bai_services.api.openapi import METHODS
from bai_services.api.serving.endpoints import ROUTES
from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    BaiError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.serving.gateway_records import ANONYMOUS
from bai_services.core.serving.records import (
    ENDED_REPLICAS_KEPT_FOR,
    NAME_RESERVED_FOR,
    REPLICA_CHANGES_KEPT,
    REVISIONS_KEPT,
)
from bai_services.core.sessions.end_reason import EndReason, SessionEnd
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.lifecycle import Event
from bai_services.db.serving.gateways import GatewayStore, RoutingRows
from bai_services.db.serving.replicas import ReplicaStore
from bai_services.db.serving.tokens import TokenStore
from bai_services.db.tables.serving import endpoint_names, endpoints
from bai_services.db.tables.sessions import kernels
from bai_services.manager.serving.replica_launch import SECRET_VARIABLE, ReplicaSecrets
from bai_services.manager.serving.runner import MAX_SESSIONS_PER_STEP
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import HUB, KEY, SUPERADMIN, Api
from tests.testbed.wait import wait_until_async

SMALL = {"resources": {"cpu": "1", "mem": "1g"}}
SETTINGS = {"variant": "cmd", "command": "python3 -m http.server $PORT", "request": SMALL}


async def make(api: Api, user: Client, name: str = "llm", **fields: Any) -> dict[str, Any]:
    await FakeAgent(api.agent).beat()
    settings = {**SETTINGS, **fields.pop("settings", {})}
    made: dict[str, Any] = await user.post(
        "/endpoints", {"name": name, "settings": settings, **fields}
    )
    return made


async def step(api: Api, times: int = 1) -> None:
    runner = api.world.manager.serving.runner
    for _ in range(times):
        await runner.step()
        await runner.probes.finish()


async def report_failed(api: Api, replica: str) -> None:
    """Let a gateway report a failed replica."""
    report = {"gateway_id": "g", "report_id": str(uuid.uuid4()), "failed": [replica]}
    await api.gateway.post("/gateway/reports", report)


async def become_unhealthy(api: Api, replica: str) -> None:
    """Let a gateway report a failed replica, and wait until the manager's own check has failed,
    too.
    """
    await report_failed(api, replica)

    async def has_no_route() -> bool:
        (endpoint,) = (await routes(api))["endpoints"]
        return endpoint["replicas"] == []

    await wait_until_async(has_no_route, 10, "the checks of the manager")


async def replicas(user: Client, *phases: str, key: str = "llm") -> list[dict[str, Any]]:
    found = (await user.get(f"/endpoints/{key}/replicas", sort="created_at"))["items"]
    return [each for each in found if not phases or each["phase"] in phases]


async def revisions(user: Client, key: str = "llm") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await user.get(f"/endpoints/{key}/revisions"))["items"]
    return found


async def routes(api: Api, **query: str) -> Any:
    return await api.gateway.get("/gateway/routes", **query)


@asynccontextmanager
async def server(status: Callable[[], int] = lambda: 200) -> AsyncIterator[tuple[str, list[str]]]:
    """Yield the URL of a replica's server, and the secrets that it has received."""
    secrets: list[str] = []

    async def respond(request: web.Request) -> web.Response:
        secrets.append(request.headers["Authorization"])
        return web.Response(status=status())

    app = web.Application()
    app.router.add_get("/", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}", secrets
    finally:
        await runner.cleanup()


async def run(api: Api, replica: str, url: str) -> None:
    """Let the session of a replica become RUNNING with its server at ``url``."""
    manager = api.world.manager
    await manager.scheduling.scheduler.step()
    for event in (Event.DISPATCHED, Event.PREPARED):
        await manager.lifecycle.apply(replica, event)
    await manager.sessions.launch.started(HUB, replica, {"main1": "c1"}, url)
    # Try the change: as there is no Hub, the manager may have changed the status already.
    await manager.lifecycle.try_apply(replica, Event.STARTED)


async def end(api: Api, replica: str, reason: str = "command exited with code 1") -> None:
    await api.world.manager.lifecycle.apply(replica, Event.FAILED, reason)


async def settle_stops(api: Api) -> None:
    """End the sessions that are being stopped."""
    manager = api.world.manager
    for each in (await (await api.client("admin")).get("/sessions", status="TERMINATING"))["items"]:
        await manager.lifecycle.apply(each["id"], Event.EXITED, "stopped")


async def test_replica_becomes_ready_and_is_routed(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user)
    assert (made["status"], made["url"]) == ("deploying", "/services/bai-serve/llm/")
    assert made["path"] == made["url"]
    await step(api, 2)
    (replica,) = await replicas(user)
    session = await user.get(f"/sessions/{replica['id']}")
    assert (session["type"], session["status"]) == ("inference", "PENDING")
    assert session["startup_command"] == SETTINGS["command"]
    assert (await routes(api))["endpoints"][0]["replicas"] == []
    async with server() as (url, secrets):
        await run(api, replica["id"], url)
        await step(api, 2)
        table = await routes(api)
        secret = ReplicaSecrets(KEY).of((await revisions(user))[0]["id"])
        assert secrets == [f"token {secret}"]
    (endpoint,) = table["endpoints"]
    (routed,) = endpoint["replicas"]
    assert (routed["url"], routed["is_draining"]) == (url, False)
    assert endpoint["weights"] == {routed["revision_id"]: 100}
    shown = await user.get("/endpoints/llm")
    assert (shown["status"], shown["ready_replicas"], shown["active_revision"]) == ("ready", 1, 1)
    # The table has not changed, so the gateway gets no new one.
    await step(api)
    assert await routes(api, version=table["version"], wait="0") is None


async def launch(api: Api, user: Client, replica: str) -> LaunchPlan:
    """Return the launch plan of a replica, which is sent to the Hub."""
    manager = api.world.manager
    await manager.scheduling.scheduler.step()
    for event in (Event.DISPATCHED, Event.PREPARED):
        await manager.lifecycle.apply(replica, event)
    session = await user.get(f"/sessions/{replica}")
    return await manager.sessions.launch.launch(
        HUB, replica, session["hub_user"], session["hub_server"]
    )


async def test_launch_plan_has_the_secret_and_no_jupyter_server(api: Api) -> None:
    user = await api.client("user")
    await make(api, user, settings={"port": 9000})
    await step(api, 2)
    (replica,) = await replicas(user)
    plan = await launch(api, user, replica["id"])
    assert plan.command[-1] == "bai_labext.replica"
    assert plan.environ["BAI_SERVICE_PORT"] == "9000"
    (revision,) = await revisions(user)
    assert plan.environ[SECRET_VARIABLE] == ReplicaSecrets(KEY).of(revision["id"])
    assert plan.environ["BAI_STARTUP_COMMAND"] == SETTINGS["command"]


async def test_model_folder_is_mounted_read_only(api: Api) -> None:
    user = await api.client("user")
    await api.world.manager.folders.vfolders.start()
    await user.post("/vfolders", {"name": "tiny"})
    await user.post("/vfolders", {"name": "extra"})
    request = {**SMALL, "mounts": [{"vfolder": "extra"}]}
    await make(
        api,
        user,
        settings={"model_folder": "tiny", "model_path": "a/b.gguf", "request": request},
    )
    await step(api, 2)
    (replica,) = await replicas(user)
    mounts = (await user.get(f"/sessions/{replica['id']}"))["mounts"]
    assert {each["vfolder"]: (each["path"], each["permission"]) for each in mounts} == {
        "tiny": ("/home/work/model", "ro"),
        "extra": ("/home/work/extra", "ro"),
    }
    plan = await launch(api, user, replica["id"])
    assert plan.environ["BAI_MODEL_PATH"] == "/home/work/model/a/b.gguf"


async def test_killed_manager_neither_loses_nor_duplicates_replicas(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = await api.client("user")
    await make(api, user, replicas=3)
    sessions = api.world.manager.sessions.sessions
    create, calls = sessions.create, 0

    async def killed_after_creation(*args: Any, **fields: Any) -> Any:
        nonlocal calls
        result = await create(*args, **fields)
        calls += 1
        if calls in (1, 2):
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(sessions, "create", killed_after_creation)
    for _ in range(6):
        with suppress(KeyboardInterrupt):
            await step(api)
    found = {each["id"] for each in await replicas(user)}
    created = {each["id"] for each in (await user.get("/sessions"))["items"]}
    assert (len(found), calls) == (3, 3)
    assert found == created


@pytest.mark.both_databases
async def test_manager_that_is_killed_at_any_write_of_a_rollout_continues_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, manager = await api.client("user"), api.world.manager
    kill_at, is_before, calls = -1, True, 0

    def killed(method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(store: ReplicaStore, *args: Any, **fields: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls - 1 == kill_at and is_before:
                raise KeyboardInterrupt
            result = await method(store, *args, **fields)
            if calls - 1 == kill_at:
                raise KeyboardInterrupt
            return result

        return call

    async def next_step() -> None:
        with suppress(KeyboardInterrupt):
            await step(api)
        waiting = (await user.get("/sessions", status="PENDING"))["items"]
        for each in waiting:
            await run(api, each["id"], url)
        drained = [each["id"] for each in await replicas(user, "draining")]
        report = {"gateway_id": "g", "report_id": str(uuid.uuid4()), "drained": drained}
        await api.gateway.post("/gateway/reports", report)
        await settle_stops(api)

    await make(api, user)
    async with server() as (url, _):
        await ready(api, user, url)
        for name in ("insert", "move", "advance"):
            monkeypatch.setattr(ReplicaStore, name, killed(getattr(ReplicaStore, name)))
        for number in range(2, 14):
            await user.post("/endpoints/llm/revisions", {"settings": {"command": f"c{number}"}})
            kill_at, is_before, calls = number // 2 - 1, number % 2 == 0, 0
            shown: dict[str, Any] = {}
            for _ in range(20):
                await next_step()
                # In each step, at least one replica must be ready.
                assert await replicas(user, "ready")
                shown = await user.get("/endpoints/llm")
                if shown["status"] == "ready" and not await replicas(user, "draining", "stopping"):
                    break
            assert calls > kill_at
            assert (shown["status"], shown["active_revision"]) == ("ready", number)
            (only,) = await replicas(user, "ready")
            found = (await user.get("/sessions", limit="500"))["items"]
            live = [each["id"] for each in found if each["status"] == "RUNNING"]
            assert live == [only["id"]]
    assert await manager.sessions.records.check_consistency() == []


async def ready(api: Api, user: Client, url: str, count: int = 1) -> list[str]:
    """Let ``count`` starting replicas become ready, and return their ids."""
    await step(api, 2)
    started = [each["id"] for each in await replicas(user, "starting")][:count]
    for each in started:
        await run(api, each, url)
    await step(api, 2)
    return started


async def test_rolling_update_replaces_the_replica_after_the_new_one_is_ready(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        shown = await user.post("/endpoints/llm/revisions", {"settings": {"command": "serve 2"}})
        assert (shown["status"], shown["target_revision"]) == ("deploying", 2)
        await step(api, 2)
        assert [each["id"] for each in await replicas(user, "ready")] == [old]
        (new,) = await ready(api, user, url)
        await step(api, 2)
    table = await routes(api)
    states = {each["id"]: each["is_draining"] for each in table["endpoints"][0]["replicas"]}
    assert states == {old: True, new: False}
    # The old replica ends only when no gateway has requests for it.
    report = {"gateway_id": "g1", "report_id": "1"}
    await api.gateway.post("/gateway/reports", report)
    await step(api, 2)
    assert [each["id"] for each in await replicas(user, "draining")] == [old]
    await api.gateway.post("/gateway/reports", {**report, "report_id": "2", "drained": [old]})
    await step(api, 2)
    assert (await user.get(f"/sessions/{old}"))["status"] in ("TERMINATING", "TERMINATED")
    await settle_stops(api)
    await step(api)
    (ended,) = await replicas(user, "ended")
    assert ended["reason_coded"]["code"] == "replica-not-needed"
    shown = await user.get("/endpoints/llm")
    assert (shown["status"], shown["active_revision"]) == ("ready", 2)
    first, second = (await user.get("/endpoints/llm/revisions", sort="number"))["items"]
    assert (first["outcome"], second["outcome"]) == ("completed", "completed")
    # Missing settings are taken from the last revision.
    assert second["settings"]["request"] == first["settings"]["request"]


async def test_gateways_check_a_replica_according_to_its_revision(api: Api) -> None:
    user = await api.client("user")
    await make(api, user, settings={"health": {"path": "/a"}})
    async with server() as (url, _):
        (old,) = await ready(api, user, url + "/..")
        manager = api.world.manager
        await ReplicaStore(manager.database).mark_ready(old, url + "/..", api.world.clock())
        await step(api, 2)
        health = {"path": "/", "expected_status": 204}
        await user.post("/endpoints/llm/revisions", {"settings": {"health": health}})
        (endpoint,) = (await routes(api))["endpoints"]
    (replica,) = endpoint["replicas"]
    assert (endpoint["health_path"], replica["health_path"]) == ("/a", "/a")
    assert (replica["health_status"], replica["health_seconds"]) == (200, 15)
    async with server(lambda: 204) as (url, _):
        (new,) = await ready(api, user, url)
        (endpoint,) = (await routes(api))["endpoints"]
    found = {
        each["id"]: (each["health_path"], each["health_status"]) for each in endpoint["replicas"]
    }
    assert found == {old: ("/a", 200), new: ("/", 204)}


async def test_revision_that_does_not_become_healthy_is_rolled_back(api: Api) -> None:
    user = await api.client("user")
    notify = api.world.manager.notifications.outbox.step
    await notify()
    endpoint = await make(api, user)
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        await user.post(
            "/endpoints/llm/revisions",
            {"settings": {"command": "broken", "rollout": {"max_failures": 2}}},
        )
        for _ in range(2):
            await step(api, 2)
            (new,) = await replicas(user, "starting")
            await end(api, new["id"])
            await step(api)
            api.world.clock.advance(seconds=40)
        await step(api, 2)
    assert [each["id"] for each in await replicas(user, "ready")] == [old]
    assert await replicas(user, "starting") == []
    shown = await user.get("/endpoints/llm")
    assert (shown["target_revision"], shown["status"]) == (1, "ready")
    second, _ = (await user.get("/endpoints/llm/revisions"))["items"]
    assert second["outcome"] == "rolled-back"
    assert "2 failed replicas" in second["reason"]
    # The owner is notified of the rollout, but not of each replica.
    await notify()
    (notice,) = (await user.get("/notifications"))["items"]
    assert (notice["event"], notice["link"]) == (
        "endpoint-failed",
        f"endpoints?item={endpoint['id']}",
    )
    assert notice["text"].startswith(
        "the rollout of endpoint llm has failed: given up after 2 failed replicas"
    )


async def test_owner_is_notified_once_when_replicas_fail_repeatedly(api: Api) -> None:
    user = await api.client("user")
    notify = api.world.manager.notifications.outbox.step
    await make(api, user)
    async with server() as (url, _):
        await ready(api, user, url)
    await notify()
    for _ in range(4):
        await step(api, 2)
        for replica in (await user.get("/endpoints/llm/replicas"))["items"]:
            if replica["phase"] in ("starting", "ready"):
                await end(api, replica["id"])
        await step(api)
        api.world.clock.advance(seconds=90)
        await notify()
    (notice,) = (await user.get("/notifications"))["items"]
    assert notice["event"] == "endpoint-failed"
    assert notice["text"].startswith("endpoint llm: its replicas fail repeatedly: ")


async def test_replica_that_does_not_pass_its_check_in_time_fails(api: Api) -> None:
    user = await api.client("user")
    health = {"path": "/", "start_seconds": 60}
    await make(api, user, settings={"health": health, "rollout": {"max_failures": 1}})
    async with server(lambda: 500) as (url, _):
        (only,) = await ready(api, user, url)
        api.world.clock.advance(seconds=61)
        await step(api, 2)
    shown = await user.get("/endpoints/llm")
    assert (shown["status"], shown["problem_coded"]["code"]) == ("failed", "replica-not-ready")
    await settle_stops(api)
    await step(api, 3)
    assert [each["phase"] for each in await replicas(user)] == ["ended"]
    # The owner can roll back to the earlier revision.
    shown = await user.post("/endpoints/llm/rollback", {"revision": 1})
    assert shown["status"] == "deploying"
    await step(api, 2)
    assert len(await replicas(user, "starting")) == 1


async def test_replica_that_a_gateway_cannot_use_must_pass_its_check_again(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    status = 200
    async with server(lambda: status) as (url, _):
        (only,) = await ready(api, user, url)
        status = 500
        await become_unhealthy(api, only)
        await step(api, 2)
        assert [each["phase"] for each in await replicas(user)] == ["starting"]
        status = 200
        await step(api, 2)
        assert [each["phase"] for each in await replicas(user)] == ["ready"]
        status = 500
        await become_unhealthy(api, only)
        api.world.clock.advance(seconds=10 * 10 + 1)
        await step(api)
    assert [each["phase"] for each in await replicas(user)] == ["stopping"]


async def test_gateway_that_is_cut_off_from_a_replica_does_not_take_it_from_others(
    api: Api,
) -> None:
    user = await api.client("user")
    await make(api, user)
    # One failed check is not enough, because the cause may be a short interruption.
    statuses = [200, 200, 200, 500, 200]
    async with server(lambda: statuses.pop(0)) as (url, requests):
        (only,) = await ready(api, user, url)
        before = (await routes(api))["version"]
        for checks in (2, 3, 5):
            await report_failed(api, only)
            await wait_until_async(lambda: len(requests) == checks, 10, "a check")  # noqa: B023
            await step(api)
            assert (await replicas(user))[0]["phase"] == "ready"
        assert (await routes(api))["version"] == before


async def test_refused_replicas_leave_one_row_for_each_pause(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await make(api, user, replicas=50)
    await admin.patch("/user-policies/default", {"max_pending_sessions": 3})
    await step(api, 6)
    phases = [each["phase"] for each in await replicas(user)]
    assert sorted(phases) == ["ended", "starting", "starting", "starting"]
    shown = await user.get("/endpoints/llm")
    assert shown["problem_coded"]["code"] == "replica-refused"
    for _ in range(4):
        api.world.clock.advance(seconds=10)
        await step(api, 4)
    phases = [each["phase"] for each in await replicas(user)]
    assert sorted(phases) == ["ended", "ended", "starting", "starting", "starting"]


async def test_large_endpoint_does_not_delay_those_of_other_owners(api: Api) -> None:
    user, user2 = await api.client("user"), await api.client("user2")
    await make(api, user, replicas=50)
    await make(api, user2, "other")
    await step(api, 2)
    assert len((await user.get("/sessions"))["items"]) == MAX_SESSIONS_PER_STEP
    assert len((await user2.get("/sessions"))["items"]) == 1
    await step(api, 2)
    assert len((await user.get("/sessions"))["items"]) == 50


async def test_crashed_replica_is_replaced_after_a_pause(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        await end(api, old)
        await step(api, 2)
        assert await replicas(user, "starting", "ready") == []
        shown = await user.get("/endpoints/llm")
        assert (shown["status"], "exited with code 1" in shown["problem"]) == ("scaling", True)
        api.world.clock.advance(seconds=6)
        (new,) = await ready(api, user, url)
        api.world.clock.advance(seconds=61)
        await step(api)
    assert new != old
    assert (await user.get("/endpoints/llm"))["problem"] == ""


async def test_problem_names_the_exit_code_of_a_command_that_ends_at_once(api: Api) -> None:
    """The session of the replica is not RUNNING yet when the Hub reports its end."""
    user, manager = await api.client("user"), api.world.manager
    await make(api, user)
    await step(api, 2)
    (replica,) = [each["id"] for each in await replicas(user, "starting")]
    await manager.scheduling.scheduler.step()
    for event in (Event.DISPATCHED, Event.PREPARED):
        await manager.lifecycle.apply(replica, event)
    await manager.sessions.launch.exited(HUB, replica, SessionEnd(3, EndReason.EXITED, "exited"))
    await step(api)
    shown = await user.get("/endpoints/llm")
    assert "the command exited with code 3" in shown["problem"]
    assert (await user.get(f"/sessions/{replica}"))["status"] == "ERROR"


async def test_replica_of_a_lost_agent_is_replaced_on_another_one(api: Api) -> None:
    user, manager, clock = await api.client("user"), api.world.manager, api.world.clock
    await make(api, user)
    status, other = 200, FakeAgent(api.agent, "a2")
    async with server(lambda: status) as (url, _):
        (lost,) = await ready(api, user, url)
        status = 500
        clock.advance(seconds=41)
        await other.beat()
        await manager.cluster.agents.check_deadlines()
        assert (await (await api.client("admin")).get("/agents/a1"))["status"] == "LOST"
        await become_unhealthy(api, lost)
        # The health check may fail ten times, every 10 s.
        for seconds in (50, 51, 6):
            clock.advance(seconds=seconds)
            await other.beat()
            await step(api, 2)
        (new,) = await replicas(user, "starting")
        status = 200
        await run(api, new["id"], url)
        await step(api, 2)
    (shown,) = await replicas(user, "ready")
    assert (shown["id"], shown["agent"]) == (new["id"], "a2")
    (former,) = [each for each in await replicas(user) if each["id"] == lost]
    assert former["reason_coded"]["code"] == "replica-not-ready"


async def test_restarted_server_of_a_replica_has_its_whole_start_time(api: Api) -> None:
    user, clock = await api.client("user"), api.world.clock
    await make(api, user, settings={"health": {"path": "/", "start_seconds": 600}})
    status = 200
    async with server(lambda: status) as (url, _), server(lambda: 500) as (restarted, _):
        (only,) = await ready(api, user, url)
        clock.advance(minutes=5)
        status = 500
        await become_unhealthy(api, only)
        (shown,) = await replicas(user)
        assert shown["reason_coded"]["code"] == "replica-unhealthy"
        launch = api.world.manager.sessions.launch
        await launch.started(HUB, only, {"main1": "c2"}, restarted)
        for _ in range(5):
            clock.advance(seconds=110)
            await step(api)
            (shown,) = await replicas(user)
            assert (shown["phase"], shown["reason"]) == ("starting", "")
        clock.advance(seconds=51)
        await step(api)
        (shown,) = await replicas(user)
    assert (shown["phase"], shown["reason_coded"]["code"]) == ("stopping", "replica-not-ready")


async def test_clock_that_is_set_back_does_not_delay_replicas(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        await end(api, old)
        await step(api)
        api.world.clock.advance(minutes=-10)
        await step(api, 2)
        assert len(await replicas(user, "starting")) == 1


async def test_killed_server_of_a_replica_is_replaced_after_one_heartbeat(api: Api) -> None:
    """The Hub would notice the end of the process up to 30 s later."""
    user, database = await api.client("user"), api.world.manager.database
    await make(api, user)
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        async with database.read() as tx:
            kernel = await tx.scalar(sa.select(kernels.c.id).where(kernels.c.session_id == old))
        dead = {"kernel_id": kernel, "session_id": old, "container_id": "c1"}
        await FakeAgent(api.agent).beat([{**dead, "is_running": False, "exit_code": 137}])
        await step(api, 2)
        (ended,) = await replicas(user, "stopping")
        assert "137" in ended["reason"]
        api.world.clock.advance(seconds=6)
        assert await ready(api, user, url) != [old]


async def test_preempted_replica_waits_and_is_no_failure(api: Api) -> None:
    user, manager = await api.client("user"), api.world.manager
    await make(api, user)
    async with server() as (url, _):
        (only,) = await ready(api, user, url)
        await manager.lifecycle.apply(only, Event.PREEMPTED, "preempted", is_requeued_at_end=True)
        await step(api, 2)
        assert (await routes(api))["endpoints"][0]["replicas"] == []
        await manager.lifecycle.apply(only, Event.REQUEUED)
        await step(api, 2)
        assert [each["phase"] for each in await replicas(user)] == ["starting"]
        assert (await user.get("/endpoints/llm"))["problem"] == ""
        await run(api, only, url)
        await step(api, 2)
    assert [each["id"] for each in await replicas(user, "ready")] == [only]


async def test_endpoint_is_scaled_paused_and_deleted(api: Api) -> None:
    user = await api.client("user")
    await make(api, user, replicas=2)
    await step(api, 2)
    assert len(await replicas(user, "starting")) == 2
    await user.patch("/endpoints/llm", {"replicas": 1})
    await step(api, 3)
    assert len(await replicas(user, "starting")) == 1
    shown = await user.patch("/endpoints/llm", {"is_paused": True})
    assert shown["status"] == "paused"
    await step(api, 3)
    assert await replicas(user, "starting") == []
    assert (await routes(api))["endpoints"][0]["is_paused"]
    await user.patch("/endpoints/llm", {"is_paused": False})
    await step(api, 2)
    assert len(await replicas(user, "starting")) == 1
    shown = await user.delete("/endpoints/llm")
    assert (await user.get("/endpoints/llm"))["status"] == "stopping"
    assert (await routes(api))["endpoints"] == []
    with pytest.raises(Conflict):
        await user.patch("/endpoints/llm", {"replicas": 3})
    await step(api, 4)
    with pytest.raises(NotFound):
        await user.get("/endpoints/llm")
    statuses = {each["status"] for each in (await user.get("/sessions"))["items"]}
    assert statuses == {"CANCELLED"}
    assert await api.world.manager.sessions.records.check_consistency() == []


@pytest.mark.both_databases
async def test_scaling_down_frees_the_emptiest_agent(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await make(api, user)
    async with server() as (url, _):
        (first,) = await ready(api, user, url)
        await FakeAgent(api.agent, "a2").beat()
        await admin.patch("/agents/a1", {"schedulable": False})
        await user.patch("/endpoints/llm", {"replicas": 2})
        await ready(api, user, url)
        # Put the sessions on the agent of the newest replica, so that the older replica's agent is
        # emptier.
        for name in ("other-1", "other-2"):
            await user.post("/sessions", {"name": name, **SMALL})
        await api.world.manager.scheduling.scheduler.step()
        shown = {each["id"]: each["agent"] for each in await replicas(user, "ready")}
        assert sorted(shown.values()) == ["a1", "a2"]
        await user.patch("/endpoints/llm", {"replicas": 1})
        await step(api)
        (draining,) = await replicas(user, "draining")
    assert (draining["id"], draining["agent"]) == (first, "a1")


async def test_new_replicas_wait_in_the_queue_with_the_priority_of_the_revision(api: Api) -> None:
    user = await api.client("user")
    large = {"resources": {"cpu": "8", "mem": "1g"}}
    await make(api, user, settings={"request": {**large, "priority": 15}})
    await step(api)
    async with server() as (url, _):
        (first,) = await ready(api, user, url)
        before = await user.post("/sessions", {"name": "before", **large})
        await user.patch("/endpoints/llm", {"replicas": 2})
        await step(api, 2)
        (starting,) = await replicas(user, "starting")
        scheduler = api.world.manager.scheduling.scheduler
        await scheduler.step()
        waiting = await user.get(f"/sessions/{starting['id']}")
        assert (waiting["status"], waiting["priority"]) == ("PENDING", 15)
        # The session of the replica starts before the session of lower priority that has waited
        # longer.
        await end(api, first)
        await scheduler.step()
        statuses = [
            (await user.get(f"/sessions/{key}"))["status"] for key in (starting["id"], before["id"])
        ]
        assert statuses == ["SCHEDULED", "PENDING"]


async def test_refusal_of_a_replica_does_not_mention_its_session_type(api: Api) -> None:
    user = await api.client("user")
    with pytest.raises(BaiError, match="no-such-image") as raised:
        await make(api, user, settings={"request": {**SMALL, "image": "no-such-image"}})
    assert "inference" not in raised.value.message


async def test_replica_shows_why_its_session_is_pending(api: Api) -> None:
    """Only the owner and administrators see the reason, because it can contain policies."""
    user, admin = await api.client("user"), await api.client("admin")
    limits = {
        "name": "one-session",
        "max_concurrent_sessions": 1,
        "default_for_unspecified": "UNLIMITED",
    }
    await admin.post("/keypair-policies", limits)
    keypair = api.world.keys["user"].access_key
    await admin.patch(f"/keypairs/{keypair}", {"resource_policy": "one-session"})
    await make(api, user)
    async with server() as (url, _):
        await ready(api, user, url)
        await user.patch("/endpoints/llm", {"replicas": 2})
        await step(api, 2)
        await api.world.manager.scheduling.scheduler.step()
        await api.world.manager.scheduling.scheduler.write_due_states()
    for name, is_shown in (("user", True), ("domain-admin", True), ("user2", False)):
        (waiting,) = await replicas(await api.client(name), "starting")
        assert waiting["session_status"] == "PENDING"
        assert ("one-session" in waiting["reason"]) is is_shown


async def test_quota_is_reported_and_the_other_replicas_serve(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await make(api, user)
    async with server() as (url, _):
        await ready(api, user, url)
        await admin.patch("/user-policies/default", {"max_pending_sessions": 0})
        await user.patch("/endpoints/llm", {"replicas": 2})
        await step(api, 3)
    shown = await user.get("/endpoints/llm")
    assert (shown["ready_replicas"], shown["problem_coded"]["code"]) == (1, "replica-refused")
    await admin.patch("/user-policies/default", {"max_pending_sessions": 10})
    api.world.clock.advance(seconds=31)
    await step(api, 2)
    assert len(await replicas(user, "starting")) == 1


async def test_blue_green_waits_for_its_promotion(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    rollout = {"strategy": "blue-green", "is_automatic": False}
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        with pytest.raises(Conflict):
            await user.post("/endpoints/llm/promotion")
        await user.post("/endpoints/llm/revisions", {"settings": {"rollout": rollout}})
        (new,) = await ready(api, user, url)
        (endpoint,) = (await routes(api))["endpoints"]
        revision_of = {each["id"]: each["revision_id"] for each in endpoint["replicas"]}
        assert endpoint["weights"] == {revision_of[old]: 100}
        await user.post("/endpoints/llm/promotion")
        await step(api, 2)
        (endpoint,) = (await routes(api))["endpoints"]
    assert endpoint["weights"] == {revision_of[new]: 100}


async def test_former_revision_that_crashes_during_a_rollout_is_restored_after_a_pause(
    api: Api,
) -> None:
    user = await api.client("user")
    await make(api, user)
    rollout = {"strategy": "blue-green", "is_automatic": False}
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        await user.post("/endpoints/llm/revisions", {"settings": {"rollout": rollout}})
        await ready(api, user, url)
        await end(api, old)
        await step(api, 4)
        assert [each["revision"] for each in await replicas(user, "starting", "ready")] == [2]
        api.world.clock.advance(seconds=31)
        await step(api, 2)
        assert [each["revision"] for each in await replicas(user, "starting")] == [1]
        # The restored replica fails again, and the next replica waits, too.
        await end(api, (await replicas(user, "starting"))[0]["id"])
        await step(api, 4)
        assert await replicas(user, "starting") == []
        assert (await user.get("/endpoints/llm"))["problem"] == ""


async def test_rollback_to_the_active_revision_ends_the_rollout(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        await user.post("/endpoints/llm/revisions", {"settings": {"command": "other"}})
        await step(api, 2)
        await user.post("/endpoints/llm/rollback", {"revision": 1})
        await step(api, 2)
    assert [each["id"] for each in await replicas(user, "starting", "ready")] == [old]
    shown = await user.get("/endpoints/llm")
    assert (shown["status"], shown["target_revision"]) == ("ready", 1)
    (first,) = (await user.get("/endpoints/llm/revisions", number="1"))["items"]
    assert first["outcome"] == "completed"


async def test_canary_with_many_errors_is_rolled_back(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user)
    rollout = {"strategy": "canary", "max_error_percent": 10, "min_requests": 20}
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        await user.post("/endpoints/llm/revisions", {"settings": {"rollout": rollout}})
        await ready(api, user, url)
        newest = (await user.get("/endpoints/llm/revisions"))["items"][0]
        routed = (await routes(api))["endpoints"][0]["replicas"]
        (former,) = (each["revision_id"] for each in routed if each["id"] == old)
        for number, outcome in ((1, None), (1, None), (2, "rolled-back")):
            counts = {
                newest["id"]: {"requests": 4, "errors": 2},
                former: {"requests": 9, "errors": 9},
            }
            report = {"id": made["id"], "revisions": counts}
            await api.gateway.post(
                "/gateway/reports",
                {"gateway_id": "g", "report_id": str(number), "endpoints": [report]},
            )
            await step(api)
            shown = (await user.get("/endpoints/llm/revisions"))["items"][0]
            assert shown["outcome"] == outcome
        assert (shown["requests"], shown["errors"]) == (8, 4)
        assert shown["reason"] == "given up after 4 failed of 8 requests"
        # A repeated rollout starts with new counts.
        await user.post("/endpoints/llm/rollback", {"revision": 2})
        shown = (await user.get("/endpoints/llm/revisions"))["items"][0]
    assert (shown["outcome"], shown["requests"], shown["errors"]) == (None, 0, 0)
    assert [each["id"] for each in await replicas(user, "ready")] == [old]


async def test_canary_keeps_its_share_after_a_pause(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    rollout = {"strategy": "canary", "canary_percent": 10, "is_automatic": False}
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        await user.post("/endpoints/llm/revisions", {"settings": {"rollout": rollout}})
        await ready(api, user, url)
        (endpoint,) = (await routes(api))["endpoints"]
        revision_of = {each["id"]: each["revision_id"] for each in endpoint["replicas"]}
        former = revision_of.pop(old)
        (canary,) = revision_of.values()
        assert endpoint["weights"] == {former: 90, canary: 10}
        await user.patch("/endpoints/llm", {"is_paused": True})
        await step(api, 3)
        await settle_stops(api)
        await step(api, 2)
        assert await replicas(user, "starting", "ready") == []
        await user.patch("/endpoints/llm", {"is_paused": False})
        assert len(await ready(api, user, url, 2)) == 2
        (endpoint,) = (await routes(api))["endpoints"]
        assert {each["revision_id"] for each in endpoint["replicas"]} == {former, canary}
        assert endpoint["weights"] == {former: 90, canary: 10}
        # The promotion is still possible.
        await user.post("/endpoints/llm/promotion")
        await step(api, 2)
        (endpoint,) = (await routes(api))["endpoints"]
        assert endpoint["weights"] == {canary: 100}


@pytest.mark.both_databases
async def test_canary_is_observed_for_a_time_and_slow_ones_are_rolled_back(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user)
    rollout = {
        "strategy": "canary", "max_p99_ms": 100, "min_requests": 20, "min_seconds": 300,
    }  # fmt: skip
    report_ids = iter(range(100))

    async def report(latency_ms: dict[str, int]) -> dict[str, Any]:
        """Report requests of the newest revision, and return the revision."""
        newest = (await user.get("/endpoints/llm/revisions"))["items"][0]
        counts = {"requests": sum(latency_ms.values()), "latency_ms": latency_ms}
        body = {"id": made["id"], "revisions": {newest["id"]: counts}}
        await api.gateway.post(
            "/gateway/reports",
            {"gateway_id": "g", "report_id": str(next(report_ids)), "endpoints": [body]},
        )
        await step(api)
        shown: dict[str, Any] = (await user.get("/endpoints/llm/revisions"))["items"][0]
        return shown

    async with server() as (url, _):
        await ready(api, user, url)
        await user.post("/endpoints/llm/revisions", {"settings": {"rollout": rollout}})
        await ready(api, user, url)
        assert (await report({"50": 200}))["outcome"] is None
        api.world.clock.advance(seconds=299)
        shown = await report({"50": 100, "1000": 2})
        # 2 of 302 requests are slow.
        assert (shown["outcome"], shown["p99_ms"]) == (None, 50)
        api.world.clock.advance(seconds=1)
        shown = await report({"50": 1})
        assert (shown["outcome"], shown["requests"]) == ("completed", 303)
        await user.post("/endpoints/llm/revisions", {"settings": {"command": "slow"}})
        await ready(api, user, url)
        assert (await report({"50": 10, "1000": 1}))["outcome"] is None
        shown = await report({"50": 9})
    assert shown["outcome"] == "rolled-back"
    assert shown["reason_coded"]["code"] == "revision-slow"
    assert shown["reason_coded"]["values"] | {"p99_ms": 0} == {
        "requests": 20,
        "limit_ms": 100,
        "p99_ms": 0,
    }


async def test_old_revisions_are_deleted(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    for number in range(REVISIONS_KEPT + 2):
        await user.post("/endpoints/llm/revisions", {"settings": {"command": f"c{number}"}})
    found = (await user.get("/endpoints/llm/revisions"))["items"]
    assert [each["number"] for each in found] == list(range(13, 3, -1))
    with pytest.raises(NotFound):
        await user.post("/endpoints/llm/rollback", {"revision": 1})


async def test_token_is_routed_counted_and_revoked(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    body = {"name": "app", "networks": ["192.0.2.7/24"], "requests_per_minute": 60}
    made = await user.post("/endpoints/llm/tokens", body)
    with pytest.raises(AlreadyExists):
        await user.post("/endpoints/llm/tokens", body)
    (routed,) = (await routes(api))["endpoints"][0]["tokens"]
    assert routed["digest"] == hashlib.sha256(made["token"].encode()).hexdigest()
    assert (routed["networks"], routed["requests_per_minute"]) == (["192.0.2.0/24"], 60)
    report = {
        "gateway_id": "g",
        "report_id": "1",
        "endpoints": [{"id": (await user.get("/endpoints/llm"))["id"], "requests": 5, "errors": 2}],
        "tokens": [{"id": made["id"], "requests": 5, "input_tokens": 7, "output_tokens": 9}],
    }
    for _ in range(2):  # the second report is a repetition
        await api.gateway.post("/gateway/reports", report)
    (shown,) = (await user.get("/endpoints/llm/tokens"))["items"]
    counts = [shown[name] for name in ("requests", "input_tokens", "output_tokens")]
    assert counts == [5, 7, 9]
    assert "token" not in shown and "digest" not in shown
    endpoint = await user.get("/endpoints/llm")
    assert (endpoint["requests"], endpoint["errors"]) == (5, 2)
    version = (await routes(api))["version"]
    waiting = asyncio.create_task(routes(api, version=version, wait="20"))
    await user.delete("/endpoints/llm/tokens/app")
    assert (await asyncio.wait_for(waiting, 5))["endpoints"][0]["tokens"] == []
    entries = (await (await api.client("admin")).get("/audit-log", entity="endpoint"))["items"]
    assert made["token"] not in str(entries)


async def test_public_endpoints_need_the_permission_of_the_policy(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    with pytest.raises(Forbidden, match="policy"):
        await make(api, user, is_public=True)
    await make(api, user)
    with pytest.raises(Forbidden):
        await user.patch("/endpoints/llm", {"is_public": True})
    await admin.patch("/user-policies/default", {"allows_public_endpoints": True})
    assert (await user.patch("/endpoints/llm", {"is_public": True}))["is_public"]
    table = await routes(api)
    assert table["endpoints"][0]["is_public"]
    # When the policy withdraws the permission, the endpoint needs tokens again.
    await admin.patch("/user-policies/default", {"allows_public_endpoints": False})
    changed = await routes(api, version=table["version"])
    assert not changed["endpoints"][0]["is_public"]


async def test_owner_who_has_left_the_project_can_delete_an_endpoint(api: Api) -> None:
    user, user2, admin = [await api.client(name) for name in ("user", "user2", "admin")]
    made = await make(api, user)
    await step(api, 2)
    await admin.delete(f"/projects/{made['project_id']}/members/user")
    assert [each["name"] for each in (await user.get("/endpoints"))["items"]] == ["llm"]
    with pytest.raises(InvalidRequest, match="not in an active project"):
        await user.post("/endpoints/llm/revisions", {"settings": {"command": "other"}})
    await user.delete("/endpoints/llm")
    await step(api, 4)
    assert (await user.get("/endpoints"))["items"] == []
    assert (await user2.get("/endpoints"))["items"] == []


async def test_gateways_share_one_build_of_the_table(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, calls = GatewayStore.routes, 0

    async def count(store: GatewayStore, now: datetime) -> RoutingRows:
        nonlocal calls
        calls += 1
        return await read(store, now)

    monkeypatch.setattr(GatewayStore, "routes", count)
    await make(api, await api.client("user"))
    await asyncio.gather(*(routes(api) for _ in range(5)))
    assert calls == 1


async def test_endpoints_of_inactive_owners_get_no_requests(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await make(api, user)
    await step(api, 2)
    (first,) = await replicas(user, "starting")
    version = (await routes(api))["version"]
    await admin.patch("/users/user", {"status": "inactive"})
    changed = await routes(api, version=version)
    assert changed["endpoints"] == []
    await admin.delete(f"/sessions/{first['id']}")
    await step(api, 4)
    assert await replicas(admin, "starting", "ready") == []
    await admin.patch("/users/user", {"status": "active"})
    await step(api, 2)
    assert len(await replicas(admin, "starting")) == 1
    assert (await admin.get("/endpoints/llm"))["problem"] == ""


async def test_endpoints_of_inactive_domains_get_no_requests(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await make(api, user)
    table = await routes(api)
    await admin.patch("/domains/default", {"is_active": False})
    changed = await routes(api, version=table["version"])
    assert changed["endpoints"] == []
    await admin.patch("/domains/default", {"is_active": True})
    assert (await routes(api, version=changed["version"]))["endpoints"] == table["endpoints"]


async def test_tokens_of_one_owner_are_limited(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bai_services.db.serving.tokens.MAX_TOKENS_PER_USER", 2)
    user = await api.client("user")
    for name in ("one", "two"):
        await make(api, user, name)
        await user.post(f"/endpoints/{name}/tokens", {"name": "app"})
    with pytest.raises(QuotaExceeded):
        await user.post("/endpoints/one/tokens", {"name": "more"})
    expires_at = api.world.clock() + timedelta(minutes=1)
    await user.delete("/endpoints/one/tokens/app")
    await user.post("/endpoints/one/tokens", {"name": "a", "expires_at": expires_at.isoformat()})
    version = (await routes(api))["version"]
    api.world.clock.advance(seconds=61)
    await user.patch("/endpoints/one", {"max_queue": 1})
    # An expired token is not sent to the gateways.
    changed = await routes(api, version=version)
    assert [len(each["tokens"]) for each in changed["endpoints"]] == [0, 1]


async def test_members_of_other_projects_find_no_endpoint(api: Api) -> None:
    """The permission matrix covers users of other domains, and calls without a sign-in."""
    user = await api.client("user")
    made = await make(api, user)
    outsider = await outsider_of(api)
    bodies: dict[str, Any] = {"/rollback": {"revision": 1}, "/tokens": {"name": "mine"}}
    checked = 0
    for pattern, handler in ROUTES:
        if not pattern.startswith("/endpoints/"):
            continue
        for key in ("llm", made["id"]):
            path = re.sub(r"\(\?P<key>[^)]*\)", key, pattern)
            path = re.sub(r"\(\?P<token>[^)]*\)", "app", path)
            for method in METHODS:
                if not hasattr(getattr(handler, method), "operation"):
                    continue
                body = bodies.get(path.removeprefix(f"/endpoints/{key}"), {})
                options = {} if method in ("get", "delete") else {"json": body}
                response = await outsider.http.request(method.upper(), path, **options)
                assert response.status_code == 404, (method, path, response.text)
                checked += 1
    assert checked >= 20
    assert (await outsider.get("/endpoints"))["items"] == []


async def outsider_of(api: Api, project: str = "other") -> Client:
    """Return a user of the same domain, in another project."""
    admin = await api.client("admin")
    (image, *_) = (await admin.get("/projects", name="default"))["items"]
    spec = {"name": project, "domain": "default", "default_image": image["default_image"]}
    await admin.post("/projects", spec)
    spec = {"username": "outsider", "email": "o@example.com", "domain": "default"}
    new = await api.world.manager.accounts.users.create(SUPERADMIN, {**spec, "projects": [project]})
    api.world.keys["outsider"] = new.keypair
    return await api.client("outsider")


@pytest.mark.both_databases
async def test_name_of_a_deleted_endpoint_is_reserved_for_its_owner_and_project(api: Api) -> None:
    """The name stays reserved. Otherwise, clients with the old URL would send tokens to another
    owner.
    """
    user, user2, outsider = (
        await api.client("user"),
        await api.client("user2"),
        await outsider_of(api),
    )
    store, database = ReplicaStore(api.world.manager.database), api.world.manager.database

    async def clean_up(after: timedelta = timedelta()) -> None:
        now = api.world.clock() + after
        await store.clean_up(now, now - ENDED_REPLICAS_KEPT_FOR, 2)

    async def delete(client: Client) -> None:
        await client.delete("/endpoints/llm")
        await step(api, 4)

    await make(api, user)
    await clean_up()
    await delete(user)
    for _ in range(2):  # before and after the clean-up
        with pytest.raises(AlreadyExists, match="reserved until") as refused:
            await make(api, outsider)
        assert refused.value.details["name"] == "llm"
        await clean_up()
    await make(api, user)
    await delete(user)
    await make(api, user2)  # of the same project
    await delete(user2)
    await clean_up()
    await clean_up(NAME_RESERVED_FOR - timedelta(minutes=1))
    with pytest.raises(AlreadyExists, match="reserved until"):
        await make(api, outsider)
    await clean_up(NAME_RESERVED_FOR + timedelta(minutes=1))
    await make(api, outsider)
    with pytest.raises(AlreadyExists, match="in use"):
        await make(api, user)
    async with database.read() as tx:
        assert (await tx.execute(sa.select(endpoint_names.c.name))).all() == [("llm",)]


async def test_reserved_names_of_an_owner_are_limited(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.db.serving.names.MAX_RESERVED_NAMES", 1)
    user, outsider = await api.client("user"), await outsider_of(api)
    store = ReplicaStore(api.world.manager.database)
    for number, name in enumerate(("first", "second", "third")):
        await make(api, user, name)
        await user.delete(f"/endpoints/{name}")
        await step(api, 4)
        now = api.world.clock() + timedelta(minutes=number)
        await store.clean_up(now, now - ENDED_REPLICAS_KEPT_FOR, 2)
    await make(api, user, "fourth")
    for name in ("first", "second"):
        await make(api, outsider, name)
    with pytest.raises(AlreadyExists, match="reserved until"):
        await make(api, outsider, "third")


async def test_name_of_a_purged_owner_is_reserved(api: Api) -> None:
    user, outsider = await api.client("user"), await outsider_of(api)
    made = await make(api, user)
    async with api.world.manager.database.write() as tx:
        # Delete the row, as a purge of the owner or a deletion of the project does.
        await tx.execute(sa.delete(endpoints).where(endpoints.c.id == made["id"]))
    with pytest.raises(AlreadyExists, match="reserved until"):
        await make(api, outsider)


async def test_only_the_owner_defines_an_endpoint(api: Api) -> None:
    user, user2 = await api.client("user"), await api.client("user2")
    acme, domain_admin = await api.client("acme-user"), await api.client("domain-admin")
    await make(api, user, settings={"request": {**SMALL, "environ": {"KEY": "secret"}}})
    await user.post("/endpoints/llm/tokens", {"name": "app"})
    # Members of the project see the endpoint, but no fields that may contain secrets.
    assert (await user2.get("/endpoints/llm"))["owner"] == "user"
    (revision,) = (await user2.get("/endpoints/llm/revisions"))["items"]
    assert revision["hidden_fields"] == ["command", "request"]
    assert "secret" not in str(revision)
    for call in (
        user2.patch("/endpoints/llm", {"replicas": 0}),
        user2.get("/endpoints/llm/tokens"),
        user2.post("/endpoints/llm/tokens", {"name": "mine"}),
        user2.delete("/endpoints/llm"),
        domain_admin.post("/endpoints/llm/revisions", {"settings": {"command": "evil"}}),
        domain_admin.post("/endpoints/llm/tokens", {"name": "mine"}),
        domain_admin.patch("/endpoints/llm", {"max_queue": 1}),
        (await api.client("admin")).post("/endpoints/llm/revisions", {}),
        (await api.client("monitor")).patch("/endpoints/llm", {"replicas": 0}),
        user.get("/gateway/routes"),
        user.post("/gateway/reports", {"gateway_id": "g", "report_id": "1"}),
    ):
        with pytest.raises(Forbidden):
            await call
    with pytest.raises(NotFound):
        await acme.get("/endpoints/llm")
    assert (await domain_admin.patch("/endpoints/llm", {"replicas": 0}))["replicas"] == 0
    await domain_admin.delete("/endpoints/llm/tokens/app")
    await domain_admin.delete("/endpoints/llm")
    with pytest.raises(Forbidden):
        await api.gateway.get("/endpoints")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "Bad"}, InvalidRequest),
        ({"settings": {"variant": "nope"}}, InvalidRequest),
        ({"settings": {"request": {"image": "missing"}}}, NotFound),
        ({"settings": {"request": {"resources": {"cpu": "9999"}}}}, BaiError),
        ({"settings": {"request": {"environ": {"BAI_X": "1"}}}}, InvalidRequest),
        ({"settings": {"model_folder": "missing"}}, NotFound),
        ({"definition": "models: []"}, InvalidRequest),
        ({"replicas": 1000}, InvalidRequest),
    ],
)
async def test_invalid_endpoint_is_rejected(
    api: Api, fields: dict[str, Any], error: type[BaiError]
) -> None:
    with pytest.raises(error):
        await make(api, await api.client("user"), **fields)


async def test_definition_is_checked_and_sets_the_revision(api: Api) -> None:
    user = await api.client("user")
    text = "models:\n- name: a\n  service:\n    command: serve --port $PORT\n    port: 9100\n"
    checked = await user.post("/model-definitions/check", {"definition": text})
    assert (checked["command"], checked["port"]) == ("serve --port $PORT", 9100)
    with pytest.raises(InvalidRequest) as problem:
        await user.post("/model-definitions/check", {"definition": text + "    bad: 1\n"})
    assert problem.value.details["line"] == 6
    await FakeAgent(api.agent).beat()
    settings = {"variant": "custom", "request": SMALL}
    await user.post("/endpoints", {"name": "llm", "settings": settings, "definition": text})
    (revision,) = (await user.get("/endpoints/llm/revisions"))["items"]
    assert revision["settings"]["port"] == 9100
    await user.post("/endpoints/llm/revisions", {"definition": text.replace("9100", "9200")})
    newest = (await user.get("/endpoints/llm/revisions"))["items"][0]
    assert newest["settings"]["port"] == 9200


async def test_ended_replicas_and_expired_tokens_are_deleted(api: Api) -> None:
    user, database = await api.client("user"), api.world.manager.database
    await make(api, user)
    expires_at = api.world.clock() + timedelta(minutes=1)
    await user.post("/endpoints/llm/tokens", {"name": "app", "expires_at": expires_at.isoformat()})
    await step(api, 2)
    for number in (0, 2, 0):
        await user.patch("/endpoints/llm", {"replicas": number})
        await step(api, 4)
    assert len(await replicas(user, "ended")) == 3
    store, now = ReplicaStore(database), api.world.clock()
    await store.clean_up(now, now - ENDED_REPLICAS_KEPT_FOR, 2)
    assert len(await replicas(user, "ended")) == 2
    later = now + ENDED_REPLICAS_KEPT_FOR + timedelta(seconds=1)
    await store.clean_up(later, later - ENDED_REPLICAS_KEPT_FOR, 2)
    assert await replicas(user) == []
    await TokenStore(database).clean_up(expires_at + timedelta(days=29))
    assert len((await user.get("/endpoints/llm/tokens"))["items"]) == 1
    await TokenStore(database).clean_up(expires_at + timedelta(days=31))
    assert (await user.get("/endpoints/llm/tokens"))["items"] == []


async def test_runtime_variants_are_listed(api: Api) -> None:
    found = await (await api.client("user")).get("/runtime-variants", name="vllm")
    assert [each["is_tested"] for each in found["items"]] == [False]


async def test_number_of_endpoints_is_limited(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bai_services.db.serving.endpoints.MAX_ENDPOINTS_PER_USER", 1)
    user = await api.client("user")
    await make(api, user)
    with pytest.raises(AlreadyExists):
        monkeypatch.setattr("bai_services.db.serving.endpoints.MAX_ENDPOINTS_PER_USER", 2)
        await make(api, user)
    monkeypatch.setattr("bai_services.db.serving.endpoints.MAX_ENDPOINTS_PER_USER", 1)
    with pytest.raises(QuotaExceeded):
        await make(api, user, "other")


async def test_endpoints_are_filtered_by_tags(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user, tags=["b", " a ", "b"])
    assert made["tags"] == ["a", "b"]
    await make(api, user, "other")
    for tags, names in ((",a,", ["llm"]), (",c,", [])):
        found = await user.get("/endpoints", tags__contains=tags)
        assert [each["name"] for each in found["items"]] == names
    assert (await user.patch("/endpoints/llm", {"tags": []}))["tags"] == []
    for tags in (["a,b"], [""], ["x" * 65], ["\u202e"]):
        with pytest.raises(InvalidRequest) as problem:
            await user.patch("/endpoints/llm", {"tags": tags})
        assert problem.value.details["field"] == "tags"
    # An administrator may scale an endpoint, but not change what its owner defines.
    with pytest.raises(Forbidden):
        await (await api.client("domain-admin")).patch("/endpoints/llm", {"tags": ["c"]})


async def test_phases_of_a_replica_and_actions_on_an_endpoint_are_recorded(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    await step(api, 2)
    (replica,) = await replicas(user)
    path = f"/endpoints/llm/replicas/{replica['id']}/history"
    async with server() as (url, _):
        await run(api, replica["id"], url)
        await step(api, 2)
        await end(api, replica["id"])
        await step(api, 2)
    changes = (await user.get(path))["items"]
    phases = [each["phase"] for each in changes]
    assert (phases[0], phases[-1]) == ("ended", "starting")
    assert "ready" in phases
    assert "exited with code 1" in "".join(each["reason"] for each in changes)
    await user.patch("/endpoints/llm", {"max_queue": 1})
    await (await api.client("admin")).patch("/endpoints/llm", {"is_paused": True})
    actions = (await user.get("/endpoints/llm/audit-log"))["items"]
    assert [(each["action"], each["actor"]) for each in actions] == [
        ("endpoint.update", "admin"),
        ("endpoint.update", "user"),
        ("endpoint.create", "user"),
    ]
    # Members of the project see the replicas, but not the actions of users.
    member = await api.client("user2")
    assert (await member.get(path))["total"] == len(changes)
    with pytest.raises(Forbidden):
        await member.get("/endpoints/llm/audit-log")
    other = "/endpoints/other/replicas"
    await make(api, user, "other")
    with pytest.raises(NotFound):
        await user.get(f"{other}/{replica['id']}/history")


async def test_only_the_last_phases_of_a_replica_are_kept(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    await step(api, 2)
    (replica,) = await replicas(user)
    store, now = ReplicaStore(api.world.manager.database), api.world.clock()
    # A new address of a starting replica does not begin a phase.
    await store.set_url(replica["id"], "http://127.0.0.1:1", now)
    assert (await user.get(f"/endpoints/llm/replicas/{replica['id']}/history"))["total"] == 1
    for number in range(1, REPLICA_CHANGES_KEPT // 2 + 1):
        await store.mark_ready(replica["id"], f"http://127.0.0.1:{number}", now)
        await store.set_url(replica["id"], f"http://127.0.0.1:{number + 1}", now)
    path = f"/endpoints/llm/replicas/{replica['id']}/history"
    assert (await user.get(path))["total"] == REPLICA_CHANGES_KEPT + 1
    await store.clean_up(now, now, 1)
    assert (await user.get(path))["total"] == REPLICA_CHANGES_KEPT


async def test_revision_can_be_saved_and_applied_later(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        settings = {"settings": {"command": "serve 2"}}
        shown = await user.post("/endpoints/llm/revisions", {**settings, "is_applied": False})
        assert (shown["target_revision"], shown["status"]) == (1, "ready")
        await step(api, 2)
        assert [each["id"] for each in await replicas(user, "starting", "ready")] == [old]
        third = {"settings": {"command": "serve 3"}}
        assert (await user.post("/endpoints/llm/revisions", third))["target_revision"] == 3
        outcomes = {each["number"]: each["outcome"] for each in await revisions(user)}
        assert outcomes == {1: "completed", 2: "saved", 3: None}
        shown = await user.post("/endpoints/llm/rollback", {"revision": 2})
        assert (shown["target_revision"], shown["status"]) == (2, "deploying")
        await ready(api, user, url)
        await step(api, 2)
    outcomes = {each["number"]: each["outcome"] for each in await revisions(user)}
    assert outcomes == {1: "completed", 2: "completed", 3: "replaced"}
    entries = (await user.get("/endpoints/llm/audit-log"))["items"]
    actions = {each["action"] for each in entries}
    assert actions > {"endpoint.save", "endpoint.deploy", "endpoint.roll-back"}


async def test_revision_of_an_outdated_form_is_refused(api: Api) -> None:
    """Two pages that both read revision 1 must not overwrite each other's settings."""
    user = await api.client("user")
    await make(api, user)
    path, change = "/endpoints/llm/revisions", {"settings": {"port": 8001}}
    await user.post(path, {**change, "last_revision": 1})
    with pytest.raises(Conflict, match="revision 2 of endpoint llm was created meanwhile"):
        await user.post(path, {"settings": {"port": 8002}, "last_revision": 1})
    await user.post(path, {"settings": {"port": 8003}, "last_revision": 2, "is_applied": False})
    with pytest.raises(Conflict, match="revision 3"):
        await user.post(path, {"settings": {"port": 8002}, "last_revision": 2})
    assert [each["settings"]["port"] for each in await revisions(user)] == [8003, 8001, 8080]


async def test_replica_may_have_several_kernels(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    cluster = {"cluster_size": 2, "cluster_mode": "single-node"}
    refused = make(api, user, settings={"request": {**SETTINGS["request"], **cluster}})
    with pytest.raises(QuotaExceeded, match="container"):
        await refused
    await admin.patch("/keypair-policies/default", {"max_containers_per_session": 2})
    await make(api, user, settings={"request": {**SETTINGS["request"], **cluster}})
    async with server() as (url, _):
        (only,) = await ready(api, user, url)
        shown = await user.get(f"/sessions/{only}")
        assert [each["hostname"] for each in shown["kernels"]] == ["main1", "sub1"]
        assert [each["phase"] for each in await replicas(user)] == ["ready"]
        (replica,) = (await routes(api))["endpoints"][0]["replicas"]
        assert replica["url"] == url
        # A new revision keeps the cluster unless it sets another one.
        for request, size in (({}, 2), ({"cluster_size": 1}, 1)):
            await user.post("/endpoints/llm/revisions", {"settings": {"request": request}})
            settings = (await revisions(user))[0]["settings"]
            assert settings["request"]["cluster_size"] == size


async def report_use(api: Api, gateway: str, *ids: str) -> None:
    """Let a gateway report two requests with each token."""
    counts = {"requests": 2, "input_tokens": 30, "output_tokens": 5}
    await api.gateway.post(
        "/gateway/reports",
        {
            "gateway_id": gateway,
            "report_id": str(uuid.uuid4()),
            "tokens": [{"id": each, **counts} for each in ids],
        },
    )


@pytest.mark.both_databases
async def test_requests_are_counted_by_day_and_token(api: Api) -> None:
    user, member, clock = await api.client("user"), await api.client("user2"), api.world.clock
    await make(api, user)
    token = (await user.post("/endpoints/llm/tokens", {"name": "app"}))["id"]
    await member.post("/endpoints/llm/chat-token", {})
    table = await routes(api)
    (chat,) = {each["id"] for each in table["endpoints"][0]["tokens"]} - {token}

    await report_use(api, "g1", token, chat, "unknown")
    await report_use(api, "g2", token)
    clock.advance(days=1)
    await report_use(api, "g1", token)
    anonymous = ANONYMOUS + table["endpoints"][0]["id"]
    await report_use(api, "g2", anonymous, f"{ANONYMOUS}unknown")
    # The usage remains when the token is revoked.
    await user.delete("/endpoints/llm/tokens/app")
    found = (await user.get("/endpoints/llm/usage"))["items"]
    shown = [(each["day"][:10], each["token"], each["requests"]) for each in found]
    today = clock().date()
    yesterday = today - timedelta(days=1)
    assert shown == [
        (f"{today}", "*", 2),
        (f"{today}", "app", 2),
        (f"{yesterday}", "", 2),
        (f"{yesterday}", "app", 4),
    ]
    assert (found[3]["input_tokens"], found[3]["output_tokens"]) == (60, 10)
    with pytest.raises(Forbidden):
        await member.get("/endpoints/llm/usage")
    clock.advance(days=401)
    await step(api)
    assert (await user.get("/endpoints/llm/usage"))["items"] == []
