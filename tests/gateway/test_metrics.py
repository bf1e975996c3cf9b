"""`/metrics` of the gateway."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bai_services.core.serving.gateway_records import RoutingTable
from bai_services.gateway import metrics
from bai_services.gateway.measures import Requests
from bai_services.gateway.routes import Routes
from tests.testbed.wait import wait_until_async

from .conftest import Bed, Upstream, both_engines, endpoint_route

READER = {"Authorization": "Bearer of-prometheus"}


async def scrape(bed: Bed) -> dict[str, float]:
    """Return the values of the endpoint `chat`."""
    address = f"http://127.0.0.1:{bed.gateways[0].port}/metrics"
    async with bed.http.get(address, headers=READER) as response:
        assert response.status == 200
        text = await response.text()
    return {
        sample.name + sample.labels.get("le", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["endpoint"] == "chat"
    }


@pytest.fixture
async def metered(bed: Bed) -> Upstream:
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route()))
    await bed.gateway(metrics_token="of-prometheus")
    await bed.ready()
    return upstream


@both_engines
async def test_requests_are_counted(bed: Bed, metered: Upstream) -> None:
    for _ in range(3):
        async with bed.http.get(bed.url("/echo")) as response:
            assert response.status == 200

    async def has_counted() -> bool:
        return (await scrape(bed)).get("bai_gateway_requests_total") == 3

    await wait_until_async(has_counted, 5, "the counter")
    # A report resets the counters for the manager, but not those of `/metrics`.
    await wait_until_async(lambda: bed.manager.total("requests") == 3, 5, "the report")
    found = await scrape(bed)
    assert found["bai_gateway_requests_total"] == 3
    assert found["bai_gateway_errors_total"] == 0
    assert found["bai_gateway_request_seconds_bucket+Inf"] == 3
    assert found["bai_gateway_request_seconds_count"] == 3
    assert found["bai_gateway_ready_replicas"] == 1
    assert found["bai_gateway_in_flight"] == found["bai_gateway_queued"] == 0


@both_engines
async def test_metrics_require_the_token(bed: Bed, metered: Upstream) -> None:
    address = f"http://127.0.0.1:{bed.gateways[0].port}/metrics"
    for authorization in ("", "Bearer wrong"):
        headers = {"Authorization": authorization}
        async with bed.http.get(address, headers=headers) as response:
            assert response.status == 401


@both_engines
async def test_head_request_gets_no_body(bed: Bed, metered: Upstream) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.gateways[0].port)
    for _ in range(2):
        writer.write(b"HEAD /health HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.close()


def test_large_counters_are_exact() -> None:
    routes = Routes()
    routes.apply(RoutingTable("1", (endpoint_route(),)))
    totals = {"e1": Requests(requests=1_234_567)}
    text = metrics.text(routes.by_name.values(), totals)
    assert 'bai_gateway_requests_total{endpoint="chat"} 1234567\n' in text


def test_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_ENDPOINTS", 2)
    routes = Routes()
    endpoints = tuple(endpoint_route(id=f"e{n}", name=f"n{n}") for n in range(5))
    routes.apply(RoutingTable("1", endpoints))
    families = text_string_to_metric_families(metrics.text(routes.by_name.values(), {}))
    labels = {sample.labels["endpoint"] for family in families for sample in family.samples}
    assert labels == {"n0", "n1", "other"}
