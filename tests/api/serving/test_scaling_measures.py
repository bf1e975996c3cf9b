"""Scaling rules that do not count requests: CPU usage, metrics, schedule; load over time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import web

from bai_services.client import Client
from bai_services.db.serving.scaling import ScalingStore
from bai_services.db.tables.serving import endpoints
from tests.testbed.manager import Api

from .test_endpoints import make, ready, step

RULE = {"min_replicas": 1, "max_replicas": 4, "stable_seconds": 10, "panic_seconds": 4}
SECONDS = 5


@asynccontextmanager
async def runtime() -> AsyncIterator[tuple[str, dict[str, str]]]:
    """Run a replica's server; yield its URL and a map whose ``text`` is the page of its metrics."""
    page = {"text": ""}

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=page["text"])

    async def health(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_get("/", health)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", page
    finally:
        await runner.cleanup()


async def wait(api: Api, user: Client, seconds: int) -> dict[str, Any]:
    """Let time pass; return the endpoint."""
    readings = api.world.manager.serving.runner.scaler.loads.readings
    for _ in range(seconds // SECONDS):
        api.world.clock.advance(seconds=SECONDS)
        await step(api)
        await readings.finish()
    shown: dict[str, Any] = await user.get("/endpoints/llm")
    return shown


@pytest.mark.both_databases
async def test_replicas_follow_a_metric_of_the_runtime(api: Api) -> None:
    user = await api.client("user")
    rule = {**RULE, "measure": "metric-mean", "metric": "busy", "target": 0.5}
    made = await make(api, user, scaling=rule)
    assert made["scaling"]["utilization"] == 1
    async with runtime() as (url, page):
        await ready(api, user, url)
        shown = await wait(api, user, 20)
        assert (shown["replicas"], shown["scaling_reason_coded"]["code"]) == (
            1,
            "scaling-no-metric",
        )
        page["text"] = 'busy{model="m"} 0.75\n'
        shown = await wait(api, user, 40)
        assert shown["replicas"] == 2
        assert shown["scaling_reason"].endswith("load of 0.75")
        history = await user.get("/endpoints/llm/load")
        assert history["load_per_replica"] == 0.5
        known = [each["load"] for each in history["points"] if each["load"] is not None]
        assert known[-1] == 0.75
        assert history["points"][0]["load"] is None
        # If another measure is set without a target, the target is the default of that measure.
        changed = await user.patch("/endpoints/llm", {"scaling": {"measure": "cpu"}})
        assert (changed["scaling"]["target"], changed["scaling"]["metric"]) == (70, "")
        # Samples are kept for an hour.
        since = api.world.clock() - timedelta(days=1)
        api.world.clock.advance(hours=2)
        await step(api)
    store = ScalingStore(api.world.manager.database)
    assert len(await store.load_points(made["id"], since)) == 1


async def test_only_those_who_may_change_a_rule_see_its_query(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user, scaling=RULE)
    query = 'sum(rate(calls{customer="a"}[1m]))'
    async with api.world.manager.database.write() as tx:
        rule = {**made["scaling"], "measure": "query", "query": query}
        await tx.execute(sa.update(endpoints).values(scaling=rule))
    for name, is_shown in (
        ("user", True),
        ("domain-admin", True),
        ("user2", False),
        ("monitor", False),
    ):
        client = await api.client(name)
        (listed,) = (await client.get("/endpoints"))["items"]
        for shown in (listed, await client.get("/endpoints/llm")):
            assert shown["scaling"]["measure"] == "query"
            assert shown["scaling"]["query"] == (query if is_shown else "")


async def test_replicas_follow_the_cpu_usage(api: Api) -> None:
    user = await api.client("user")
    await make(api, user, scaling={**RULE, "measure": "cpu", "target": 50})
    manager = api.world.manager
    async with runtime() as (url, _):
        await ready(api, user, url)
        shown = await wait(api, user, 10)
        assert (shown["replicas"], shown["scaling_reason_coded"]["code"]) == (1, "scaling-no-cpu")
        (replica,) = (await user.get("/endpoints/llm/replicas", phase="ready"))["items"]
        (kernel,) = (await user.get(f"/sessions/{replica['id']}"))["kernels"]
        for _ in range(8):
            manager.sessions.usage_sampling.add(kernel["id"], {"cpu_cores": 0.9})
            shown = await wait(api, user, 5)
        # 90 % of one core, so that two replicas have 45 % each.
        assert shown["replicas"] == 2
        assert shown["scaling_reason"].endswith("load of 90")


async def test_schedule_raises_the_minimum(api: Api) -> None:
    user = await api.client("user")
    now = api.world.clock()
    day = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[now.weekday()]
    period = {
        "days": day, "starts": "00:00", "ends": "23:59", "zone": "UTC", "min_replicas": 3,
        "max_replicas": 4,
    }  # fmt: skip
    made = await make(api, user, scaling={**RULE, "schedule": [period]})
    assert made["scaling"]["schedule"] == [period]
    await step(api)
    shown = await user.get("/endpoints/llm")
    assert shown["replicas"] == 3
    assert shown["scaling_reason"] == (
        "the load is unknown; nothing is changed; the minimum is 3 replicas"
    )
    shown = await user.patch("/endpoints/llm", {"scaling": {"schedule": []}})
    assert shown["scaling"]["schedule"] == []
