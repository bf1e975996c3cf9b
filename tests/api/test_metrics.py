"""`/metrics`: the state of the cluster, the token of Prometheus, the dashboard and the alerts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx
import pytest

from bai_services.client import Client, Token
from bai_services.core.errors import Forbidden, NotSignedIn
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import METRICS_TOKEN, Api
from tests.testbed.prometheus import RULES, dashboard_queries, metrics_in, program

DOCUMENT = Path(__file__).parents[2] / "docs" / "admin-guide" / "monitoring.md"
MEASURED = {"utilization_percent": 40, "memory_used_bytes": 2**30, "temperature_celsius": 61}


async def scrape(api: Api, token: str = METRICS_TOKEN) -> str:
    async with httpx.AsyncClient() as http:
        headers = {"Authorization": f"Bearer {token}"}
        response = await http.get(f"{api.url}/api/v1/metrics", headers=headers)
    assert response.status_code == 200, response.text
    return response.text


async def scrape_with_lease(api: Api) -> str:
    await api.world.manager.scheduling.lease.hold()
    return await scrape(api)


async def test_the_token_of_prometheus_reads_only_the_metrics(api: Api) -> None:
    assert "bai_scheduler_lease_held 0.0" in await scrape(api)
    client = Client(api.url, Token(METRICS_TOKEN))
    for path in ("/sessions", "/users", "/system"):
        with pytest.raises(Forbidden):
            await client.get(path)
    await client.close()
    wrong = Client(api.url, Token("x"))
    with pytest.raises(NotSignedIn):
        await wrong.get("/metrics")
    await wrong.close()


async def test_unknown_methods_of_requests_have_one_label(api: Api) -> None:
    async with httpx.AsyncClient() as http:
        for method in ("FOO1", "FOO2", "PATCH"):
            await http.request(method, f"{api.url}/api/v1/health")
    text = await scrape(api)
    assert "FOO" not in text
    assert 'method="other"' in text and 'method="PATCH"' in text


async def test_scrape_contains_sessions_agents_and_devices(api: Api) -> None:
    agent = FakeAgent(api.agent)
    device = {"id": "d1", "family": "cuda", "index": 0, "model": "H100", "memory_bytes": 2**36}
    facts = {"load": {"cpu_percent": 12.5, "memory_bytes": "much"}}
    await agent.beat(devices=[{**device, "facts": {"usage": MEASURED}}], facts=facts)
    user = await api.client("user")
    await user.post("/sessions", {"name": "my-lab", "resources": {"cpu": 1, "mem": "1g"}})
    assert "bai_sessions{" not in await scrape(api)
    text = await scrape_with_lease(api)
    node = f'agent="{agent.id}"'
    for line in (
        'bai_sessions{resource_group="default",status="PENDING",type="interactive"} 1.0',
        'bai_longest_wait_seconds{resource_group="default"} 0.0',
        'bai_agents{resource_group="default",status="ALIVE"} 1.0',
        f"bai_agent_cpu_percent{{{node}}} 12.5",
        f'bai_device_utilization_percent{{{node},device="d1"}} 40.0',
        f'bai_device_temperature_celsius{{{node},device="d1"}} 61.0',
        f'bai_device_capacity{{{node},device="d1"}} 1.0',
        f'bai_device_info{{{node},device="d1",family="cuda",index="0",model="H100",'
        'resource_group="default"} 1.0',
    ):
        assert line in text.splitlines(), line
    assert "bai_agent_memory_bytes{" not in text
    assert "bai_device_power_watts{" not in text


async def test_dashboard_and_alerts_use_only_metrics_of_the_scrape(api: Api) -> None:
    text = await scrape_with_lease(api)
    known = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    known |= {f"{name}_bucket" for name in known}
    used = metrics_in(RULES.read_text()) | metrics_in(" ".join(dashboard_queries()))
    assert used <= known, sorted(used - known)
    assert len(used) > 30


async def test_every_exported_metric_is_documented(api: Api) -> None:
    """A name in the table of the documentation may end with an ellipsis."""
    text = await scrape_with_lease(api)
    exported = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE bai_")}
    names = re.findall(r"`(bai_[a-z_]+)(…?)`", DOCUMENT.read_text(encoding="utf-8"))
    exact = {name for name, ellipsis in names if not ellipsis}
    prefixes = tuple(name for name, ellipsis in names if ellipsis)
    # The client library adds the time of creation of each counter and histogram.
    missing = {
        name
        for name in exported - exact
        if not name.startswith(prefixes) and not name.endswith("_created")
    }
    assert missing == set()
    assert len(exported) > 30
    # The documentation names no metric that is not exported.
    assert exact <= exported, sorted(exact - exported)


def test_promtool_accepts_the_alert_rules() -> None:
    done = subprocess.run(
        [program("promtool"), "check", "rules", RULES], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
