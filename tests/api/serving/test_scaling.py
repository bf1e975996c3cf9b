"""Autoscaling of endpoints over REST: reports of gateways, and the loop that evaluates rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import sqlalchemy as sa

from bai_services.client import Client, Token
from bai_services.core.errors import Conflict, InvalidRequest, NotFound
from bai_services.db.serving.scaling import ScalingStore
from bai_services.db.tables.serving import endpoints
from bai_services.gateway.app import run_gateway
from bai_services.gateway.routes import Routes
from bai_services.gateway.server import GatewayServer
from bai_services.manager.serving.scaler import EndpointScaler
from bai_services.service_client import ServiceClient
from tests.testbed.manager import (
    GATEWAY_TOKEN,
    Api,
    MovableClock,
    known_world,
    manager_on,
    serving,
)
from tests.testbed.wait import wait_until_async

from .test_endpoints import make, ready, replicas, run, server, settle_stops, step

RULE = {
    "min_replicas": 0, "max_replicas": 3, "target": 1, "utilization": 1, "stable_seconds": 10,
    "panic_seconds": 4, "idle_seconds": 20,
}  # fmt: skip
SECONDS = 2
PERIOD = {
    "days": "daily", "starts": "00:00", "ends": "00:00", "zone": "UTC", "min_replicas": 1,
    "max_replicas": 1,
}  # fmt: skip


class Gateway:
    """Reports the load of the endpoint ``llm``."""

    def __init__(self, api: Api, endpoint: str, name: str = "g1") -> None:
        self._api = api
        self._endpoint = endpoint
        self._name = name
        self._count = 0

    async def report(self, in_flight: int = 0, queued: int = 0, **others: Any) -> None:
        self._count += 1
        load = {"id": self._endpoint, "in_flight": in_flight, "queued": queued}
        report = {"gateway_id": self._name, "report_id": str(self._count), "endpoints": [load]}
        await self._api.gateway.post("/gateway/reports", report | others)


async def wait(api: Api, user: Client, gateway: Gateway, seconds: int, load: int) -> list[int]:
    """Let time pass with a constant load; return the number of replicas after each step."""
    found = []
    for _ in range(seconds // SECONDS):
        api.world.clock.advance(seconds=SECONDS)
        await gateway.report(in_flight=load)
        await step(api)
        found.append((await user.get("/endpoints/llm"))["replicas"])
    return found


async def drain(api: Api, user: Client, gateway: Gateway) -> None:
    """Let all draining replicas end."""
    await step(api)
    drained = [each["id"] for each in await replicas(user, "draining")]
    await gateway.report(drained=drained)
    await step(api)
    await settle_stops(api)
    await step(api)


async def changes(user: Client) -> list[tuple[int, int, str]]:
    found = (await user.get("/endpoints/llm/scalings", sort="created_at"))["items"]
    return [(each["former"], each["replicas"], each["reason_coded"]["code"]) for each in found]


async def test_from_zero_to_three_and_back(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user, scaling=RULE)
    assert (made["replicas"], {**made["scaling"], **RULE}) == (1, made["scaling"])
    gateway = Gateway(api, made["id"])
    async with server() as (url, _):
        await ready(api, user, url)
        # The first replica was ready once, so the endpoint may scale to zero. There are no
        # requests.
        found = await wait(api, user, gateway, 36, load=0)
        assert (found[0], found[-1]) == (1, 0)
        await drain(api, user, gateway)
        shown = await user.get("/endpoints/llm")
        assert (shown["status"], shown["ready_replicas"]) == ("ready", 0)
        # The first request starts a replica at once.
        await gateway.report(queued=1)
        await step(api)
        assert (await user.get("/endpoints/llm"))["scaling_reason"] == "burst with a load of 1"
        await ready(api, user, url)
        await gateway.report(in_flight=1)
        assert set(await wait(api, user, gateway, 10, load=1)) == {1}
        found = await wait(api, user, gateway, 8, load=5)
        assert found[-1] == 3
        await ready(api, user, url, count=2)
        shown = await user.get("/endpoints/llm")
        assert shown["ready_replicas"] == 3
        assert shown["scaling_reason_coded"]["code"] in ("scaling-load", "scaling-maximum")
        # A constant load changes nothing.
        before = await changes(user)
        assert set(await wait(api, user, gateway, 30, load=3)) == {3}
        assert await changes(user) == before
        newest = (await replicas(user, "ready"))[-1]["id"]
        found = await wait(api, user, gateway, 12, load=2)
        assert found[-1] == 2
        assert [each["id"] for each in await replicas(user, "draining")] == [newest]
        found = await wait(api, user, gateway, 36, load=0)
        assert found == sorted(found, reverse=True)
        assert found[-1] == 0
        await drain(api, user, gateway)
    assert await replicas(user, "starting", "ready", "draining", "stopping") == []
    numbers = [each[1] for each in await changes(user)]
    assert numbers in ([0, 1, 3, 2, 1, 0], [0, 1, 2, 3, 2, 1, 0])
    await ScalingStore(api.world.manager.database).clean_up(kept=2)
    assert [each[1] for each in await changes(user)] == [1, 0]


async def test_rollout_starts_a_replica_although_a_period_permits_none(api: Api) -> None:
    user = await api.client("user")
    period = {**PERIOD, "min_replicas": 0}
    made = await make(api, user, scaling={**RULE, "schedule": [period]})
    gateway = Gateway(api, made["id"])
    async with server() as (url, _):
        await ready(api, user, url)
        assert (await wait(api, user, gateway, 36, load=0))[-1] == 0
        await drain(api, user, gateway)
        await user.post("/endpoints/llm/revisions", {"settings": {"command": "serve 2"}})
        await gateway.report()
        await step(api)
        assert (await user.get("/endpoints/llm"))["replicas"] == 1


async def test_rule_that_is_no_longer_valid_stops_no_other_endpoint(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user, scaling=RULE)
    rule = {**made["scaling"], "schedule": [{**PERIOD, "zone": "Former/Zone"}]}
    async with api.world.manager.database.write() as tx:
        await tx.execute(sa.update(endpoints).values(scaling=rule))
    await make(api, user, name="other")
    await step(api)
    assert len(await replicas(user, key="other")) == 1


async def test_gateway_holds_the_first_request_until_a_replica_serves(api: Api) -> None:
    user, runner = await api.client("user"), api.world.manager.serving.runner
    await make(api, user, replicas=0)
    await step(api)
    await user.patch("/endpoints/llm", {"scaling": RULE})
    token = (await user.post("/endpoints/llm/tokens", {"name": "app"}))["token"]
    gateway, stop = GatewayServer(Routes()), asyncio.Event()
    client = ServiceClient(api.url, Token(GATEWAY_TOKEN))
    process = asyncio.create_task(run_gateway(gateway, client, "127.0.0.1", 0, stop))
    runner.start()
    async with server() as (url, _), aiohttp.ClientSession() as http:
        await wait_until_async(lambda: gateway.routes.is_known, 10, "routes")
        target = f"http://127.0.0.1:{gateway.port}/services/bai-serve/llm/"
        headers = {"Authorization": f"Bearer {token}"}
        response = asyncio.create_task(http.get(target, headers=headers))

        async def session() -> Any:
            return (await user.get("/sessions"))["items"]

        await wait_until_async(session, 10, "the session of a replica")
        await run(api, (await session())[0]["id"], url)
        async with await response as found:
            assert found.status == 200
    stop.set()
    await process
    await gateway.stop()
    await client.close()
    await runner.stop()


async def test_lost_gateway_no_longer_counts(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user, scaling=RULE)
    lost, other = Gateway(api, made["id"], "lost"), Gateway(api, made["id"], "other")
    async with server() as (url, _):
        await ready(api, user, url)
        await lost.report(in_flight=2)
        found = await wait(api, user, other, 20, load=1)
        assert found[-1] == 3
        found = await wait(api, user, other, 30, load=1)
        assert found[-1] == 1
        # Without a report, the load is unknown, so nothing changes.
        api.world.clock.advance(minutes=10)
        await step(api)
        shown = await user.get("/endpoints/llm")
    assert (shown["replicas"], shown["scaling_reason_coded"]["code"]) == (1, "scaling-unknown")


async def test_gateway_that_stopped_before_a_clock_change_no_longer_counts(
    api: Api,
) -> None:
    user = await api.client("user")
    made = await make(api, user, scaling=RULE)
    lost, other = Gateway(api, made["id"], "lost"), Gateway(api, made["id"], "other")
    async with server() as (url, _):
        await ready(api, user, url)
        await lost.report(in_flight=2)
        assert (await wait(api, user, other, 20, load=1))[-1] == 3
        api.world.clock.advance(minutes=-10)
        assert (await wait(api, user, other, 30, load=1))[-1] == 1


async def test_slow_first_replica_is_not_ended_before_it_can_serve(api: Api) -> None:
    user = await api.client("user")
    health = {"path": "/", "start_seconds": 3600}
    made = await make(api, user, scaling=RULE, settings={"health": health})
    gateway, status = Gateway(api, made["id"]), 200
    async with server(lambda: status) as (url, _):
        await ready(api, user, url)
        await wait(api, user, gateway, 36, load=0)
        await drain(api, user, gateway)
        await gateway.report(queued=1)
        status = 500
        await ready(api, user, url)
        # The client has disconnected.
        assert set(await wait(api, user, gateway, 40, load=0)) == {1}
        status = 200
        assert (await wait(api, user, gateway, 4, load=0))[-1] == 1
        assert len(await replicas(user, "ready")) == 1
        assert (await wait(api, user, gateway, 20, load=0))[-1] == 0


async def test_quota_limits_the_number_of_replicas(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    made = await make(api, user, scaling={**RULE, "min_replicas": 1})
    gateway = Gateway(api, made["id"])
    async with server() as (url, _):
        await ready(api, user, url)
        await admin.patch("/user-policies/default", {"max_pending_sessions": 0})
        await wait(api, user, gateway, 14, load=3)
        shown = await user.get("/endpoints/llm")
        assert (shown["replicas"], shown["ready_replicas"]) == (1, 1)
        assert shown["scaling_reason_coded"]["code"] == "scaling-refused"
        tries = len(await replicas(user))
        await wait(api, user, gateway, 20, load=3)
        assert len(await replicas(user)) == tries
        await admin.patch("/user-policies/default", {"max_pending_sessions": 10})
        api.world.clock.advance(seconds=20)
        assert (await wait(api, user, gateway, 14, load=3))[-1] == 3


async def test_standby_receives_reports_and_takes_over(
    api: Api, database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    user = await api.client("user")
    made = await make(api, user, scaling=RULE)
    async with (
        server() as (url, _),
        manager_on(database_url, tmp_path, clock, is_migrated=True) as second,
        serving(await known_world(second, clock)) as standby,
    ):
        await ready(api, user, url)
        gateway = Gateway(standby, made["id"])
        assert (await wait(api, user, gateway, 14, load=3))[-1] == 3
        await ready(api, user, url, count=2)
        await second.serving.runner.step()
        before = await changes(user)
        # The standby manager takes over without a history of the load. It changes nothing, because
        # the load is the same.
        await api.world.manager.scheduling.scheduler.lease.stop()
        assert await second.scheduling.scheduler.lease.hold() is not None
        assert set(await wait(standby, user, gateway, 30, load=3)) == {3}
        assert await changes(user) == before


@pytest.mark.both_databases
async def test_killed_manager_repeats_the_step(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    user = await api.client("user")
    made = await make(api, user, scaling=RULE)
    gateway, set_number, calls = Gateway(api, made["id"]), ScalingStore.set, 0

    async def killed(self: ScalingStore, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        result = await set_number(self, *args)
        if calls == 2:
            raise KeyboardInterrupt
        return result

    async with server() as (url, _):
        await ready(api, user, url)
        monkeypatch.setattr(ScalingStore, "set", killed)
        for _ in range(12):
            api.world.clock.advance(seconds=SECONDS)
            await gateway.report(in_flight=9)
            try:
                await step(api)
            except KeyboardInterrupt:
                # Another process evaluates the rules next.
                runner = api.world.manager.serving.runner
                store = ScalingStore(api.world.manager.database)
                runner.scaler = EndpointScaler(store, runner.scaler.loads)
        assert len(await replicas(user, "starting", "ready")) == 3
        found = await changes(user)
    assert calls > 2
    assert [found[0][0], *[each[1] for each in found]] in ([1, 3], [1, 2, 3])


async def test_rule_and_fixed_number_replace_each_other(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user)
    assert (made["scaling"], made["scaling_reason"]) == (None, "")
    shown = await user.patch("/endpoints/llm", {"scaling": {"min_replicas": 2, "max_replicas": 4}})
    assert (shown["replicas"], shown["scaling"]["idle_seconds"]) == (2, 300)
    # Fields that are not given keep their values.
    shown = await user.patch("/endpoints/llm", {"scaling": {"min_replicas": 0, "target": 2.5}})
    assert (shown["scaling"]["max_replicas"], shown["scaling"]["target"]) == (4, 2.5)
    await step(api)
    domain_admin = await api.client("domain-admin")
    shown = await domain_admin.patch("/endpoints/llm", {"scaling": {"max_replicas": 1}})
    assert shown["replicas"] == 1
    with pytest.raises(Conflict):
        await user.patch("/endpoints/llm", {"version": 1, "scaling": {"max_replicas": 9}})
    shown = await user.patch("/endpoints/llm", {"replicas": 0})
    assert (shown["replicas"], shown["scaling"]) == (0, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"scaling": {"min_replicas": 3, "max_replicas": 2}},
        {"scaling": {"max_replicas": 101}},
        {"scaling": {"target": 0}},
        {"scaling": {"utilization": 1.5}},
        {"scaling": {"panic_seconds": 61}},
        {"scaling": {"idle_seconds": 59}},
        {"scaling": {"idle_seconds": 3601}},
        {"scaling": {"measure": "cpu", "min_replicas": 0}},
        {"scaling": {"measure": "metric-mean", "target": 1}},
        {"scaling": {"measure": "metric-mean", "metric": "running"}},
        {"scaling": {"measure": "metric-mean", "metric": "a b", "target": 1}},
        {"scaling": {"measure": "query", "query": "up", "target": 1}},
        {"scaling": {"schedule": [{**PERIOD, "days": "never"}]}},
        {"scaling": {"schedule": [{**PERIOD, "min_replicas": 2}]}},
        {"scaling": {"schedule": [PERIOD] * 21}},
        {"scaling": {}, "replicas": 1},
    ],
)
async def test_invalid_rule_is_rejected(api: Api, fields: dict[str, Any]) -> None:
    user = await api.client("user")
    with pytest.raises(InvalidRequest):
        await make(api, user, **fields)
    with pytest.raises(NotFound):
        await user.get("/endpoints/llm")
