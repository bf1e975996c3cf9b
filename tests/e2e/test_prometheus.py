"""Debian's Prometheus scrapes the shared demo and evaluates the dashboard and the alerts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hub import RunningHub
from tests.testbed.prometheus import Prometheus, dashboard_queries, scraping
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e


def test_prometheus_scrapes_the_demo(hub: RunningHub, tmp_path: Path) -> None:
    token = (hub.home / "secrets" / "metrics-token").read_text()
    with scraping(hub.url, token, tmp_path) as prometheus:
        wait_until(lambda: prometheus.values('sum(bai_agents{status="ALIVE"}) > 0'), 30, "an agent")
        assert prometheus.values("bai_scheduler_lease_held")[0][1] == 1
        (cores,) = prometheus.values('bai_agent_slot_capacity{slot="cpu"}')
        assert cores[1] >= 1 and "agent" in cores[0]
        assert prometheus.values("bai_device_healthy") != []
        for query in dashboard_queries():
            prometheus.values(query)
        wait_until(lambda: {"ok"} == _health_of_rules(prometheus), 30, "evaluated rules")


def _health_of_rules(prometheus: Prometheus) -> set[str]:
    groups = prometheus.get("rules")["groups"]
    return {rule["health"] for group in groups for rule in group["rules"]}
