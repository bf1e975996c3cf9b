"""What is particular to the engine HAProxy."""

from __future__ import annotations

import ipaddress
import signal
import time

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.gateway.haproxy.wanted import address_prefixes, shares
from bai_services.trusted_proxies import TrustedProxies
from tests.testbed.wait import wait_until_async

from .conftest import Bed, Upstream, endpoint_route, token_route


@pytest.fixture
def engine() -> str:
    return "haproxy"


def was_passed_on(upstream: Upstream) -> bool:
    """Return whether HAProxy itself sent the last request: it writes names in lower case."""
    return all(name.islower() for name, _ in upstream.requests[-1].raw_headers)


async def test_haproxy_itself_gives_requests_to_replicas(bed: Bed) -> None:
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route(secret="s3cret")))
    await bed.gateway(proxies=TrustedProxies(trusts_own=True))
    await bed.ready()
    headers = {
        "Cookie": "jupyterhub-session-id=1", "X-Forwarded-For": "203.0.113.9, 198.51.100.7",
        "X-Real-IP": "203.0.113.9", "X-Bai-Peer": "203.0.113.9",
    }  # fmt: skip
    for _ in range(2):
        async with bed.http.post(bed.url("/v1/x?a=%20b"), data=b"x", headers=headers) as response:
            received = await response.json()
            assert not {"Set-Cookie", "Keep-Alive"} & set(response.headers)
            assert response.headers["Content-Security-Policy"].startswith("sandbox")
    assert (received["path"], received["bytes"]) == ("/v1/x?a=%20b", 1)
    passed = received["headers"]
    assert not {"cookie", "x-real-ip", "x-bai-peer"} & set(passed)
    assert passed["authorization"] == "token s3cret"
    assert passed["x-forwarded-for"] == "198.51.100.7"
    assert was_passed_on(upstream)
    assert not bed.gateways[0].connections
    # Counted, although the gateway has not seen them.
    await wait_until_async(lambda: bed.manager.total("requests") == 2, 5, "the report")


async def test_changes_need_no_new_process(bed: Bed, upstream: Upstream) -> None:
    other = await bed.upstream("r2")
    for replica in (other, upstream, other):
        await bed.set(endpoint_route(replica.route()))
        await bed.ready()
        async with bed.http.get(bed.url("/echo")) as response:
            assert (await response.json())["replica"] == replica.name
    await bed.set(endpoint_route(other.route(), tokens=()))
    async with bed.http.get(bed.url("/echo")) as response:
        assert response.status == 401
    assert bed.haproxies[0].starts == 1


async def status_of_a_new_client(bed: Bed) -> int:
    async with (
        aiohttp.ClientSession(headers=bed.http.headers) as http,
        http.get(bed.url("/echo")) as response,
    ):
        return response.status


async def test_killed_haproxy_is_started_again(bed: Bed, upstream: Upstream) -> None:
    (haproxy,) = bed.haproxies
    began = time.monotonic()
    haproxy.send_signal(signal.SIGKILL)
    # The listening socket stays open, so that new connections are not refused.
    assert await status_of_a_new_client(bed) == 200
    assert time.monotonic() - began < 2
    await wait_until_async(lambda: haproxy.starts == 2 and haproxy.is_current, 5, "the maps")
    assert await status_of_a_new_client(bed) == 200
    assert was_passed_on(upstream)


async def test_token_expires_without_a_change_of_the_routes(bed: Bed, upstream: Upstream) -> None:
    soon = token_route(expires_at=time.time() + 1.5)
    await bed.set(endpoint_route(upstream.route(), tokens=(soon,)))
    async with bed.http.get(bed.url("/stream")) as response:
        await response.content.readuntil(b"\n\n")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    async with bed.http.get(bed.url("/echo")) as response:
        assert response.status == 401


async def test_endpoint_without_a_slot_is_served_by_the_gateway(bed: Bed) -> None:
    replicas = [await bed.upstream(f"r{number}") for number in range(5)]  # one more than slots
    await bed.set(endpoint_route(*(replica.route() for replica in replicas)))
    await bed.gateway()
    await bed.ready(5)
    found = set()
    for _ in range(5):
        async with bed.http.get(bed.url("/echo")) as response:
            found.add((await response.json())["replica"])
    assert len(found) == 5


NETWORKS = st.builds(
    lambda address, share: ipaddress.ip_network(
        f"{address}/{round(share * address.max_prefixlen)}", strict=False
    ),
    st.ip_addresses(), st.floats(0, 1),
)  # fmt: skip


@given(network=NETWORKS, address=st.ip_addresses())
def test_prefixes_of_a_network_are_those_of_its_addresses(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    prefixes = address_prefixes(network)
    assert len(prefixes) <= 8
    for each in (address, network[0], network[-1]):
        digits = each.max_prefixlen // 4
        text = f"{digits}:{int(each):0{digits}X}"
        is_inside = each.version == network.version and each in network
        assert any(text.startswith(prefix) for prefix in prefixes) == is_inside


@given(weights=st.lists(st.integers(1, 1000), min_size=1, max_size=10))
def test_shares_are_near_the_weights(weights: list[int]) -> None:
    found = shares(weights)
    assert sum(found) == 100
    assert all(
        abs(share - 100 * weight / sum(weights)) <= 1
        for share, weight in zip(found, weights, strict=True)
    )
