"""Load balancing, queue, scaling from zero, health checks, draining, reports to the manager."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bai_services.gateway import exchange, health, manager_link
from bai_services.gateway.health import TIMEOUT_SECONDS
from tests.testbed.wait import wait_until_async

from .conftest import Bed, Upstream, both_engines, endpoint_route


async def get(bed: Bed, path: str, gateway: int = 0) -> tuple[int, str]:
    async with bed.http.get(bed.url(path, gateway)) as response:
        document = await response.json()
        return response.status, document.get("replica", document.get("error"))


@asynccontextmanager
async def requests_during(bed: Bed, path: str) -> AsyncIterator[list[tuple[int, str]]]:
    """Send requests of four clients during the block; collect their responses."""
    responses: list[tuple[int, str]] = []
    is_over = asyncio.Event()

    async def client() -> None:
        while not is_over.is_set():
            responses.append(await get(bed, path))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(client())
        try:
            yield responses
        finally:
            is_over.set()


@both_engines
async def test_requests_wait_while_there_is_no_replica(bed: Bed) -> None:
    await bed.manager.set(endpoint_route(max_queue=2))
    gateway = await bed.gateway()
    endpoint = gateway.routes.by_name[b"chat"]
    waiting = [asyncio.create_task(get(bed, "/echo")) for _ in range(2)]
    await wait_until_async(lambda: len(endpoint.queue) == 2, 5, "the queue")
    async with bed.http.get(bed.url("/echo")) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
    # The manager sees the waiting requests, and starts a replica.
    await wait_until_async(
        lambda: any(e["queued"] == 2 for r in bed.manager.reports for e in r["endpoints"]),
        5, "the report",
    )  # fmt: skip
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route(), max_queue=2))
    assert await asyncio.gather(*waiting) == [(200, "r1"), (200, "r1")]


async def test_first_request_without_a_replica_is_reported_at_once(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_link, "BUSY_SECONDS", 600.0)
    await bed.manager.set(endpoint_route())
    gateway = await bed.gateway()
    await wait_until_async(
        lambda: any(r["endpoints"] for r in bed.manager.reports), 5, "the first report"
    )
    waiting = [asyncio.create_task(get(bed, "/echo")) for _ in range(3)]
    await wait_until_async(
        lambda: any(e["queued"] for r in bed.manager.reports for e in r["endpoints"]),
        5, "the report",
    )  # fmt: skip
    # The later requests do not cause a report of their own.
    endpoint = gateway.routes.by_name[b"chat"]
    await wait_until_async(lambda: len(endpoint.queue) == 3, 5, "the queue")
    assert len(bed.manager.reports) <= 3
    gateway.sweep(time.monotonic() + 31)
    assert await asyncio.gather(*waiting) == [(503, "unavailable")] * 3


async def test_reports_contain_only_endpoints_with_changes(
    bed: Bed, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_link, "BUSY_SECONDS", 0.02)
    monkeypatch.setattr(manager_link, "QUIET_SECONDS", 0.02)

    def reported() -> list[int]:
        """Return the number of running requests in each report that contains the endpoint."""
        return [e["in_flight"] for r in bed.manager.reports for e in r["endpoints"]]

    async def more(count: int) -> None:
        wanted = len(bed.manager.reports) + count
        await wait_until_async(lambda: len(bed.manager.reports) >= wanted, 5, "reports")

    waiting = asyncio.create_task(get(bed, "/wait"))
    await wait_until_async(lambda: 1 in reported(), 5, "the running request")
    await more(3)
    before = reported()
    await more(3)
    assert reported() == before
    # The load is reported again after a new routing table, and after a report whose response was
    # lost.
    await bed.manager.set(endpoint_route(upstream.route(), max_queue=7))
    await wait_until_async(lambda: reported() == [*before, 1], 5, "the load again")
    bed.manager.lost_answers = 1
    await wait_until_async(lambda: reported() == [*before, 1, 1], 5, "the load again")
    upstream.release.set()
    await waiting
    await wait_until_async(lambda: reported()[-1] == 0, 5, "the end")
    await more(2)
    assert reported()[len(before) :] == [1, 1, 0]


@both_engines
async def test_request_waits_no_longer_than_the_limit(bed: Bed) -> None:
    await bed.manager.set(endpoint_route())
    gateway = await bed.gateway()
    endpoint = gateway.routes.by_name[b"chat"]
    waiting = asyncio.create_task(get(bed, "/echo"))
    leaving = asyncio.create_task(get(bed, "/echo"))
    await wait_until_async(lambda: len(endpoint.queue) == 2, 5, "the queue")
    leaving.cancel()
    await wait_until_async(lambda: len(endpoint.queue) == 1, 5, "the client's end")
    gateway.sweep(time.monotonic() + 31)
    assert await waiting == (503, "unavailable")


@both_engines
async def test_concurrency_of_a_replica_is_limited(bed: Bed, upstream: Upstream) -> None:
    await bed.set(endpoint_route(upstream.route(), max_concurrent_per_replica=1, max_queue=2))
    endpoint = bed.gateways[0].routes.by_name[b"chat"]
    running = [asyncio.create_task(get(bed, "/wait")) for _ in range(3)]
    await wait_until_async(lambda: endpoint.load.queued == 2, 5, "the queue")
    assert upstream.running == 1
    async with bed.http.get(bed.url("/echo")) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
        assert (await response.json())["error"] == "unavailable"
    upstream.release.set()
    assert await asyncio.gather(*running) == [(200, "r1")] * 3


@both_engines
async def test_revisions_get_their_shares_and_replicas_equal_ones(bed: Bed) -> None:
    first, second, canary, unused = [await bed.upstream(f"r{number}") for number in range(1, 5)]
    routes = (
        first.route(), second.route(), canary.route(revision_id="v2"),
        unused.route(revision_id="v3"),
    )  # fmt: skip
    await bed.manager.set(endpoint_route(*routes, weights={"v1": 4, "v2": 1, "v3": 0}))
    await bed.gateway()
    await bed.ready(4)
    if bed.engine == "haproxy":  # HAProxy chooses revisions at random
        found = Counter([(await get(bed, "/echo"))[1] for _ in range(100)])
        assert abs(found["r1"] - found["r2"]) <= 1
        assert 4 <= found["r3"] <= 40
        return
    found = Counter([(await get(bed, "/echo"))[1] for _ in range(20)])
    assert found == {"r1": 8, "r2": 8, "r3": 4}


@both_engines
async def test_same_prefix_goes_to_the_same_replica(bed: Bed) -> None:
    replicas = [await bed.upstream(f"r{number}") for number in range(4)]
    routes = [replica.route() for replica in replicas]
    await bed.manager.set(endpoint_route(*routes, prefix_characters=18))
    await bed.gateway()
    await bed.ready(4)
    found: dict[int, set[str]] = {}
    for number in range(8):
        for end in ("a", "b", "c" * 100):
            async with bed.http.post(
                bed.url("/echo"),
                json={"temperature": len(end), "prompt": f"{number} the same prompt {end}"},
            ) as response:
                found.setdefault(number, set()).add((await response.json())["replica"])
    assert all(len(names) == 1 for names in found.values())
    assert len(set.union(*found.values())) > 1


@both_engines
async def test_replica_that_cannot_be_reached_loses_no_request(bed: Bed) -> None:
    first, second = await bed.upstream("r1"), await bed.upstream("r2")
    await bed.manager.set(endpoint_route(first.route(), second.route()))
    await bed.gateway()
    await bed.ready(2)
    await first.stop()
    assert {await get(bed, "/echo") for _ in range(10)} == {(200, "r2")}
    await wait_until_async(
        lambda: bed.manager.reports[-1]["failed"] == ["r1"], 10, "the failed replica"
    )


@both_engines
async def test_unhealthy_replica_gets_no_requests(bed: Bed, upstream: Upstream) -> None:
    upstream.is_healthy = False
    other = await bed.upstream("r2")
    other.is_healthy = False
    await bed.set(endpoint_route(other.route()))
    await wait_until_async(
        lambda: bed.manager.reports[-1]["failed"] == ["r2"], 5, "the failed replica"
    )
    waiting = asyncio.create_task(get(bed, "/echo"))
    await wait_until_async(lambda: bed.gateways[0].routes.by_name[b"chat"].queue, 5, "the queue")
    other.is_healthy = True
    assert await waiting == (200, "r2")


@both_engines
async def test_replica_is_checked_according_to_its_revision(bed: Bed) -> None:
    old, new = await bed.upstream("r1"), await bed.upstream("r2")
    new.is_healthy = False  # /health of the replica responds with an error
    route = new.route(health_path="/ready", health_status=200)
    await bed.manager.set(endpoint_route(old.route(), route))
    await bed.gateway()
    await bed.ready(2)
    assert {await get(bed, "/echo") for _ in range(6)} == {(200, "r1"), (200, "r2")}


async def test_slow_health_check_has_the_time_limit_of_its_revision(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", 0.05)
    slow, other = await bed.upstream("r1"), await bed.upstream("r2")
    route = slow.route(health_path="/wait", health_seconds=30)
    await bed.manager.set(endpoint_route(route, other.route(health_path="/wait")))
    gateway = await bed.gateway()
    replicas = gateway.routes.by_name[b"chat"].replicas
    await wait_until_async(lambda: replicas["r2"].failures >= 3, 10, "failures of the other one")
    assert replicas["r1"].failures == 0
    slow.release.set()
    await bed.ready()
    assert await get(bed, "/echo") == (200, "r1")


@both_engines
async def test_drain_loses_no_request(bed: Bed) -> None:
    first, second = await bed.upstream("r1"), await bed.upstream("r2")
    await bed.manager.set(endpoint_route(first.route()))
    await bed.gateway()
    await bed.ready()
    waiting = asyncio.create_task(get(bed, "/wait"))
    await wait_until_async(lambda: first.running, 5, "the request")
    draining = first.route(is_draining=True)
    async with requests_during(bed, "/echo") as responses:
        await wait_until_async(lambda: len(responses) > 10, 5, "requests before the drain")
        await bed.set(endpoint_route(draining, second.route()))
        await bed.ready(2)
        await wait_until_async(lambda: (200, "r2") in responses, 5, "requests during the drain")
    assert set(responses) == {(200, "r1"), (200, "r2")}
    assert {await get(bed, "/echo") for _ in range(5)} == {(200, "r2")}
    await bed.report()
    assert not any(report["drained"] for report in bed.manager.reports)
    first.release.set()
    assert await waiting == (200, "r1")
    await wait_until_async(
        lambda: bed.manager.reports[-1]["drained"] == ["r1"], 5, "the drained replica"
    )


@both_engines
async def test_waiting_requests_survive_the_end_of_the_only_replica(
    bed: Bed, upstream: Upstream
) -> None:
    other = await bed.upstream("r2")
    other.release.set()
    await bed.set(endpoint_route(upstream.route(), max_concurrent_per_replica=1))
    endpoint = bed.gateways[0].routes.by_name[b"chat"]
    running = [asyncio.create_task(get(bed, "/wait")) for _ in range(4)]
    await wait_until_async(lambda: endpoint.load.queued == 3, 5, "the queue")
    draining = upstream.route(is_draining=True)
    # The new replica belongs to another revision.
    new = other.route(revision_id="v2")
    await bed.set(endpoint_route(draining, new, weights={"v2": 1}, max_concurrent_per_replica=1))
    await bed.report()
    assert not any(report["drained"] for report in bed.manager.reports)
    upstream.release.set()
    assert {status for status, _ in await asyncio.gather(*running)} == {200}
    await wait_until_async(
        lambda: bed.manager.reports[-1]["drained"] == ["r1"], 5, "the drained replica"
    )


async def test_bodies_of_waiting_requests_are_bounded(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_OWNER_HELD_BYTES", 100_000)
    second = endpoint_route(id="e2", name="second")
    await bed.manager.set(endpoint_route(), second)
    gateway = await bed.gateway()
    owner = gateway.routes.by_name[b"chat"].owner

    async def post(size: int, name: str = "chat") -> int:
        async with bed.http.post(bed.url("/echo", name=name), data=bytes(size)) as response:
            return response.status

    waiting = [asyncio.create_task(post(40_000)) for _ in range(2)]
    await wait_until_async(lambda: owner.held_bytes == 80_000, 5, "the bodies")
    # Both endpoints have the same owner.
    assert await post(40_000) == await post(40_000, "second") == 503
    assert owner.held_bytes == 80_000
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route()))
    assert await asyncio.gather(*waiting) == [200, 200]
    assert owner.held_bytes == 0
    assert await post(200_000) == 200


@both_engines
async def test_two_gateways_have_their_own_queues_and_counters(bed: Bed) -> None:
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route()))
    for number in range(2):
        await bed.gateway()
        await bed.ready(gateway=number)
    assert [await get(bed, "/echo", number % 2) for number in range(4)] == [(200, "r1")] * 4
    await wait_until_async(lambda: bed.manager.total("requests") == 4, 5, "reports")
    assert len({report["gateway_id"] for report in bed.manager.reports}) == 2


async def test_report_without_an_answer_is_sent_again_with_the_same_id(
    bed: Bed, upstream: Upstream
) -> None:
    bed.manager.lost_answers = 1
    await get(bed, "/echo")
    await wait_until_async(lambda: bed.manager.total("requests") == 1, 5, "the report")
    await get(bed, "/echo")
    await wait_until_async(lambda: bed.manager.total("requests") == 2, 5, "the second report")
    ids = Counter(report["report_id"] for report in bed.manager.reports)
    assert max(ids.values()) == 2


async def test_usage_that_a_replica_invents_does_not_stop_the_reports(
    bed: Bed, upstream: Upstream
) -> None:
    """Three times 10⁹ tokens are more than a report may contain."""
    # Lose the first response, so that the next report has the usage of all three requests.
    bed.manager.lost_answers = 1
    await asyncio.gather(*(get(bed, "/huge_usage") for _ in range(3)))
    await wait_until_async(lambda: bed.manager.total("requests") == 3, 5, "the reports")
    assert not bed.manager.refused


async def test_report_that_the_manager_refuses_is_not_sent_again(
    bed: Bed, upstream: Upstream
) -> None:
    bed.gateways[0].measures.request("e" * 100, "v1", 0.1, is_error=False)
    await wait_until_async(lambda: bed.manager.refused, 5, "the refusal")
    await get(bed, "/echo")
    await wait_until_async(lambda: bed.manager.total("requests") == 1, 5, "the next report")
    assert len(bed.manager.refused) == 1


@both_engines
async def test_gateway_serves_without_the_manager(bed: Bed, upstream: Upstream) -> None:
    await bed.manager.stop()
    assert await get(bed, "/echo") == (200, "r1")
    await bed.manager.start()
    await bed.manager.set()
    await wait_until_async(lambda: not bed.gateways[0].routes.by_name, 10, "the new table")
    await bed.applied()
    assert await get(bed, "/echo") == (404, "not-found")


async def test_replicas_that_do_not_answer_do_not_delay_the_checks_of_others(bed: Bed) -> None:
    # The kernel accepts the connections, but nobody reads from them.
    silent = bed.stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512))
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    upstream = await bed.upstream()
    hanging = [upstream.route(id=f"h{number}", url=url) for number in range(60)]
    await bed.manager.set(
        endpoint_route(*hanging, id="e0", name="hanging"), endpoint_route(upstream.route())
    )
    await bed.gateway()
    began = time.monotonic()
    await bed.ready()
    assert time.monotonic() - began < TIMEOUT_SECONDS / 2


@both_engines
async def test_replica_that_returns_is_drained_only_after_its_former_requests(
    bed: Bed, upstream: Upstream
) -> None:
    endpoint = bed.gateways[0].routes.by_name[b"chat"]
    request = asyncio.create_task(get(bed, "/wait"))
    await wait_until_async(lambda: upstream.running, 5, "the request")
    # The replica failed its health check, passed the next one, and was then drained.
    await bed.set(endpoint_route())
    assert not endpoint.replicas
    await bed.set(endpoint_route(upstream.route(secret="s3cret")))
    await bed.ready()
    count = len(bed.manager.reports)
    await bed.set(endpoint_route(upstream.route(secret="s3cret", is_draining=True)))
    assert endpoint.replicas["r1"].route.is_draining
    await wait_until_async(lambda: len(bed.manager.reports) >= count + 2, 5, "reports")
    assert not any(report["drained"] for report in bed.manager.reports)
    upstream.release.set()
    assert await request == (200, "r1")
    await wait_until_async(lambda: bed.manager.reports[-1]["drained"] == ["r1"], 5, "drained")
