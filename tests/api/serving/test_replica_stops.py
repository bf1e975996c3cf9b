"""Stops of replicas by a user, a rule or a preemption; visibility of their errors to members."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
import sqlalchemy as sa

from bai_services.db.tables.sessions import kernels
from tests.api.sessions.test_idle_checkers import create_checker, judging_of, pass_time
from tests.testbed.manager import Api

from .test_endpoints import SMALL, make, ready, replicas, routes, server, step


async def test_stopped_replica_finishes_its_requests_first(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    async with server() as (url, _):
        (first,) = await ready(api, user, url)
        assert (await user.delete(f"/sessions/{first}"))["status"] == "RUNNING"
        (routed,) = (await routes(api))["endpoints"][0]["replicas"]
        assert (routed["id"], routed["is_draining"]) == (first, True)
        (second,) = await ready(api, user, url)
        report = {"gateway_id": "g", "report_id": "1", "drained": [first]}
        await api.gateway.post("/gateway/reports", report)
        await step(api)
        assert (await user.get(f"/sessions/{first}"))["status"] == "TERMINATED"
        (stopped,) = await replicas(user, "stopping", "ended")
        assert stopped["reason"] == "stopped by user"
        # The stop does not count as a failure of the revision.
        assert (await user.get("/endpoints/llm"))["problem"] == ""
        # A replica that still has requests is stopped after 30 s, or by a second call.
        await api.gateway.post("/gateway/reports", {"gateway_id": "g", "report_id": "2"})
        await user.delete(f"/sessions/{second}")
        api.world.clock.advance(seconds=29)
        await api.gateway.post("/gateway/reports", {"gateway_id": "g", "report_id": "3"})
        await step(api)
        assert (await user.get(f"/sessions/{second}"))["status"] == "RUNNING"
        api.world.clock.advance(seconds=2)
        await step(api)
        assert (await user.get(f"/sessions/{second}"))["status"] == "TERMINATED"
        (third,) = await ready(api, user, url)
        await user.delete(f"/sessions/{third}")
        assert (await user.delete(f"/sessions/{third}"))["status"] == "TERMINATED"


async def exceed_lifetime(api: Api, replica: str) -> None:
    await (await api.client("admin")).patch(
        "/keypair-policies/default", {"max_session_lifetime_seconds": 600}
    )
    api.world.clock.advance(minutes=11)
    # The deadlines are checked every second until the session has ended.
    for _ in range(2):
        await api.world.manager.sessions.deadlines.step()


async def exceed_budget(api: Api, replica: str) -> None:
    admin, now = await api.client("admin"), api.world.clock()
    prices = [{"slot": "sessions", "per_hour": 60}]
    await admin.put("/usage-prices", {"currency": "EUR", "prices": prices})
    period = [(now + timedelta(days=days)).isoformat() for days in (-1, 1)]
    spec = {"period": "fixed", "starts_at": period[0], "ends_at": period[1]}
    budget = {"project": "default/default", "amount": 1, "mode": "block", "stop_after_minutes": 1}
    await admin.post("/budgets", {**budget, **spec})
    watch = api.world.manager.usage.budget_watch
    for _ in range(3):
        api.world.clock.advance(minutes=2)
        await watch.step()
        await watch.step()


async def be_idle(api: Api, replica: str) -> None:
    admin = await create_checker(api, session_types=["inference"])
    async with api.world.manager.database.read() as tx:
        kernel = await tx.scalar(sa.select(kernels.c.id).where(kernels.c.session_id == replica))
    await pass_time(api, judging_of(api), {"kernel_id": kernel}, 450, 0.0)
    (decision,) = (await admin.get("/idle-decisions"))["items"]
    assert decision["session_id"] == replica


@pytest.mark.parametrize(
    ("exceed", "code"),
    [
        pytest.param(exceed_lifetime, "lifetime", id="maximum lifetime"),
        pytest.param(exceed_budget, "budget-stop", id="spent budget"),
        pytest.param(be_idle, "idle-utilization", id="idle checker"),
    ],
)
async def test_replica_that_a_rule_stops_finishes_its_requests_first(
    api: Api, exceed: Callable[[Api, str], Awaitable[None]], code: str
) -> None:
    user = await api.client("user")
    await make(api, user)
    async with server() as (url, _):
        (replica,) = await ready(api, user, url)
        await exceed(api, replica)
        assert (await user.get(f"/sessions/{replica}"))["status"] == "RUNNING"
        (routed,) = (await routes(api))["endpoints"][0]["replicas"]
        assert (routed["id"], routed["is_draining"]) == (replica, True)
        report = {"gateway_id": "g", "report_id": "1", "drained": [replica]}
        await api.gateway.post("/gateway/reports", report)
        await step(api)
        ended = await user.get(f"/sessions/{replica}")
        assert (ended["status"], ended["status_coded"]["code"]) == ("TERMINATED", code)
        # The stop does not count as a failure of the revision.
        assert (await user.get("/endpoints/llm"))["problem"] == ""


async def test_replica_that_will_be_preempted_gets_no_more_requests(api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    async with server() as (url, _):
        (replica,) = await ready(api, user, url)
        await api.world.manager.scheduling.preemptions.prepare_stop(replica, 60.0)
        (routed,) = (await routes(api))["endpoints"][0]["replicas"]
        assert routed["is_draining"]
        (draining,) = await replicas(user, "draining")
        assert draining["reason"] == "its session will be preempted"


async def test_members_do_not_see_names_in_problems(api: Api) -> None:
    user, member = await api.client("user"), await api.client("user2")
    await api.world.manager.folders.vfolders.start()
    await user.post("/vfolders", {"name": "private-models"})
    settings = {
        "model_folder": "private-models", "rollout": {"max_failures": 1}, "request": SMALL,
    }  # fmt: skip
    await make(api, user, settings=settings)
    await user.delete("/vfolders/private-models")
    await step(api, 3)
    for client, is_named in (
        (user, True),
        (await api.client("domain-admin"), True),
        (member, False),
    ):
        shown = [
            await client.get("/endpoints/llm"),
            (await client.get("/endpoints"))["items"][0],
            (await client.get("/endpoints/llm/replicas"))["items"][0],
            {**(await client.get("/endpoints/llm/revisions"))["items"][0], "settings": {}},
        ]
        assert ["private-models" in str(each) for each in shown] == [is_named] * 4
    assert shown[0]["problem_coded"]["code"] == "replica-refused-brief"
