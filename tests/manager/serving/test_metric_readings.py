"""Metrics of replicas and results of Prometheus queries, read from real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bai_services.core.serving.runtime_metrics import MAX_ANSWER_BYTES, MAX_PAGE_BYTES
from bai_services.manager.serving.metric_readings import (
    FRESH_SECONDS,
    QUERY_SECONDS,
    READ_SECONDS,
    MetricReadings,
)
from bai_services.manager.serving.replica_launch import ReplicaSecrets

from .test_probes import replica

Respond = Callable[[web.Request], web.Response]


@asynccontextmanager
async def serve(path: str, respond: Respond) -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.Response:
        return respond(request)

    app = web.Application()
    app.router.add_get(path, handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_metric_of_a_replica_is_read_again_and_expires() -> None:
    clock, page, secrets = Clock(), "tokens_total 100\nrunning 2\n", ReplicaSecrets(b"key")
    received = []

    def respond(request: web.Request) -> web.Response:
        received.append(request.headers["Authorization"])
        return web.Response(text=page)

    readings = MetricReadings(secrets, "", clock)
    async with serve("/metrics", respond) as url:
        one = replica("one", url)

        async def read(name: str) -> float | None:
            clock.now += READ_SECONDS
            readings.of_replica(one, "owner", "/metrics", name)
            await readings.finish()
            return readings.of_replica(one, "owner", "/metrics", name)

        assert await read("running") == 2
        assert received == [f"token {secrets.of(one.revision_id)}"]
        # The rate of a counter needs two readings, so the first one gives no value.
        assert await read("tokens_total") is None
        page = "tokens_total 150\n"
        assert await read("tokens_total") == 50 / READ_SECONDS
        for bad in ("nothing 1\n", "x" * (MAX_PAGE_BYTES + 1)):
            page = bad
            assert await read("tokens_total") == 50 / READ_SECONDS
        clock.now += FRESH_SECONDS
        assert await read("tokens_total") is None
    await readings.close()


async def test_redirects_of_replicas_are_not_followed() -> None:
    visited = []

    def respond(request: web.Request) -> web.Response:
        visited.append(request.path)
        raise web.HTTPFound(request.url.with_path("/other"))

    clock = Clock()
    readings = MetricReadings(ReplicaSecrets(b"key"), "", clock)
    async with serve("/{name}", respond) as url:
        readings.of_replica(replica("one", url), "owner", "/metrics", "running")
        await readings.finish()
    assert visited == ["/metrics"]
    await readings.close()


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ('{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}', 7.0),
        ('{"status":"error","errorType":"bad_data"}', "bad_data"),
        ("x" * (MAX_ANSWER_BYTES + 1), f"the answer has more than {MAX_ANSWER_BYTES} bytes"),
        (None, "the Prometheus server cannot be reached"),
    ],
)
async def test_query_returns_its_result_or_its_problem(
    body: str | None, result: float | str
) -> None:
    clock, queries = Clock(), []

    def respond(request: web.Request) -> web.Response:
        queries.append(request.query["query"])
        return web.Response(text=body or "")

    async with serve("/api/v1/query", respond) as url:
        address = url if body is not None else "http://127.0.0.1:1"
        readings = MetricReadings(ReplicaSecrets(b"key"), address, clock)
        query = 'sum(rate(requests{job="a&b"}[1m]))'
        assert readings.of_query("e", "owner", query) == "no answer yet"
        await readings.finish()
        assert readings.of_query("e", "owner", query) == result
        assert queries == ([query] if body is not None else [])
        clock.now += QUERY_SECONDS
        readings.of_query("e", "owner", query)
        await readings.finish()
        assert len(queries) == (2 if body is not None else 0)
        await readings.close()


async def test_query_without_a_prometheus_server_returns_the_setting_to_configure() -> None:
    readings = MetricReadings(ReplicaSecrets(b"key"), "", Clock())
    assert "BAI_PROMETHEUS_URL" in str(readings.of_query("e", "owner", "up"))
