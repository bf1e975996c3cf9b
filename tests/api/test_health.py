"""`/health`, `/counter-audit`, `/metrics` and `/openapi.json`."""

from __future__ import annotations

import httpx
import pytest
import sqlalchemy as sa

from bai_services import __version__
from bai_services.core.errors import Forbidden
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.tables.sessions import scope_usage
from bai_services.manager.scheduling.lease import Lease
from tests.testbed.manager import Api


async def test_health_needs_no_sign_in_and_reports_an_unavailable_hub(api: Api) -> None:
    assert await api.nobody.get("/health") == {
        "status": "degraded",
        "version": __version__,
        "database": True,
        "hub": False,
        "standby": False,
    }


async def test_health_reports_whether_the_manager_is_on_standby(api: Api) -> None:
    other = Lease(LeaseStore(api.world.manager.database), api.world.clock, seconds=60)
    assert await other.hold() is not None
    assert await api.world.manager.scheduling.scheduler.lease.hold() is None
    assert (await api.nobody.get("/health"))["standby"] is True
    await other.stop()
    assert await api.world.manager.scheduling.scheduler.lease.hold() is not None
    assert (await api.nobody.get("/health"))["standby"] is False


async def test_counter_audit_lists_differences(api: Api) -> None:
    monitor = await api.client("monitor")
    assert (await monitor.get("/counter-audit"))["differences"] == []
    async with api.world.manager.database.write() as tx:
        values = {"scope": "user", "scope_id": "nobody", "slot": "cpu", "used": 500}
        await tx.execute(sa.insert(scope_usage).values(values))
    (difference,) = (await monitor.get("/counter-audit"))["differences"]
    assert "nobody" in difference
    registry = api.world.manager.metrics.registry
    assert registry.get_sample_value("bai_counter_differences") == 1


async def test_metrics_are_served_to_monitors_but_not_to_users(api: Api) -> None:
    with pytest.raises(Forbidden):
        await (await api.client("user")).get("/metrics")
    async with (await api.client("monitor")).http as http:
        text = (await http.get("/metrics")).text
    assert "bai_requests_total" in text


async def test_duration_of_streams_and_long_polls_is_not_measured(api: Api) -> None:
    user = await api.client("user")
    resources = {"cpu": "1", "mem": "1g"}
    created = {"name": "created", "resources": resources}
    await user.post("/sessions/preview", created)
    session = await user.post("/sessions", {**created, "max_wait_seconds": 0.1})
    path = f"/sessions/{session['id']}"
    await user.get(path, wait="RUNNING", timeout="0.1")
    await user.delete(path)
    await user.send("GET", f"{path}/log-stream")
    families = {family.name: family for family in api.world.manager.metrics.registry.collect()}
    counted = {sample.labels["route"] for sample in families["bai_requests"].samples}
    routes = {"/sessions", "/sessions/{key}", "/sessions/{key}/log-stream", "/sessions/preview"}
    assert routes <= counted
    measured = {
        (sample.labels["method"], sample.labels["route"])
        for sample in families["bai_request_duration_seconds"].samples
    }
    assert measured & {
        ("POST", "/sessions"),
        ("GET", "/sessions/{key}"),
        ("GET", "/sessions/{key}/log-stream"),
        ("POST", "/sessions/preview"),
    } == {("POST", "/sessions/preview")}


async def test_openapi_document_needs_no_sign_in(api: Api) -> None:
    async with httpx.AsyncClient() as http:
        document = (await http.get(f"{api.url}/api/v1/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    assert "/users/{key}" in document["paths"]
    (session,) = document["paths"]["/usage-trends"]["get"]["parameters"]
    assert session["schema"] == {"type": "array", "items": {"type": "string"}}
