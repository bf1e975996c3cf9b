"""`/component-settings`: the settings that the Hub and agents report."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.operations.component_settings import MAX_SETTINGS
from tests.testbed.manager import Api

BEAT = {
    "resource_group": "default",
    "engine": "process",
    "architecture": "x86_64",
    "version": "1",
    "slots": {"cpu": "1", "mem": "1g"},
    "kernels": [],
}


def setting(name: str, value: str | None = "1", origin: str = "file") -> dict[str, str | None]:
    return {"name": name, "value": value, "default": "0", "origin": origin}


async def shown(api: Api, **filters: str) -> list[tuple[Any, ...]]:
    monitor = await api.client("monitor")
    items = (await monitor.get("/component-settings", **filters))["items"]
    return [(each["kind"], each["component"], each["name"], each["value"]) for each in items]


async def test_agent_reports_its_settings_when_they_change(api: Api) -> None:
    path = "/agents/a-1/heartbeat"
    first = await api.agent.post(path, {**BEAT, "settings": [setting("A.x"), setting("A.y", None)]})
    again = await api.agent.post(path, BEAT)
    assert (first["is_new"], again["is_new"]) == (True, False)
    mine = [("agent", "a-1", "A.x", "1"), ("agent", "a-1", "A.y", None)]
    assert await shown(api, component="a-1") == mine
    assert await shown(api, component="a-1", origin__ne="file") == []
    await api.agent.post(path, {**BEAT, "settings": [setting("A.x", "2"), setting("A.x", "3")]})
    assert await shown(api, component="a-1") == [("agent", "a-1", "A.x", "3")]

    await api.agent.post(path, {**BEAT, "is_leaving": True})
    await (await api.client("admin")).delete("/agents/a-1")
    assert await shown(api, component="a-1") == []
    # The agent still runs, but its network was interrupted.
    assert (await api.agent.post(path, BEAT))["is_new"]


@pytest.mark.both_databases
async def test_concurrent_hub_reports_are_accepted(api: Api) -> None:
    body = {"settings": [setting("H.x"), setting("H.y")]}
    # The id of an agent can be "hub".
    await api.agent.post("/agents/hub/heartbeat", {**BEAT, "settings": [setting("A.x")]})
    await asyncio.gather(*(api.hub.put("/component-settings/hub", body) for _ in range(4)))
    hub = [("hub", "hub", "H.x", "1"), ("hub", "hub", "H.y", "1")]
    assert await shown(api, kind="hub") == hub
    assert await shown(api, component="hub", kind="agent") == [("agent", "hub", "A.x", "1")]


async def test_invalid_or_oversized_report_is_rejected(api: Api) -> None:
    path = "/component-settings/hub"
    largest = [setting(f"H.{number}") for number in range(MAX_SETTINGS - 1)]
    await api.hub.put(path, {"settings": [*largest, setting("x" * 64, "x" * 500)]})
    for settings, reason in (
        ([setting(f"H.{number}") for number in range(MAX_SETTINGS + 1)], r"^settings: .*at most"),
        ([setting("H.x", "x" * 501)], r"^settings\.0\.value: .*at most 500"),
        ([setting("x" * 65)], r"^settings\.0\.name: .*at most 64"),
        ([setting("H.x", origin="database")], r"^settings\.0\.origin: "),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            await api.hub.put(path, {"settings": settings})
