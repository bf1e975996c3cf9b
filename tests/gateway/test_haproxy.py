"""Behavior that only the engine HAProxy has."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from bai_services.core.errors import Unavailable
from bai_services.core.serving.gateway_records import EndpointRoute, ReplicaRoute
from bai_services.gateway.haproxy import configuration
from bai_services.gateway.haproxy.configuration import UNDECIDED, Settings
from bai_services.gateway.haproxy.process import HaproxyProcess
from bai_services.gateway.haproxy.runtime import MAX_LINE_BYTES, Runtime
from bai_services.gateway.haproxy.slots import Slots
from bai_services.gateway.haproxy.wanted import (
    address_prefixes,
    is_address,
    shares,
    token_entries,
)
from bai_services.gateway.routes import Endpoint
from bai_services.trusted_proxies import TrustedProxies
from tests.testbed.wait import wait_until_async

from .conftest import TOKEN, Bed, Upstream, endpoint_route, token_route


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
        "X-Real-IP": "203.0.113.9", "X-Bai-Peer": "203.0.113.9", "X-Forwarded-User": "root",
        "X-Forwarded-Host": "hub.example.org", "X_Forwarded_User": "root", "X_Real_IP": "1",
    }  # fmt: skip
    for _ in range(2):
        async with bed.http.post(bed.url("/v1/x?a=%20b"), data=b"x", headers=headers) as response:
            received = await response.json()
            assert not {"Set-Cookie", "Keep-Alive"} & set(response.headers)
            assert response.headers["Content-Security-Policy"].startswith("sandbox")
    assert (received["path"], received["bytes"]) == ("/v1/x?a=%20b", 1)
    passed = received["headers"]
    assert not {"cookie", "x-real-ip", "x-bai-peer", "x-forwarded-user"} & set(passed)
    assert not {"x_real_ip", "x_forwarded_user"} & set(passed)
    assert "x-forwarded-host" not in passed  # bai_labext.replica refuses this header
    assert passed["authorization"] == "token s3cret"
    assert passed["x-forwarded-for"] == "198.51.100.7"
    assert was_passed_on(upstream)
    assert not bed.gateways[0].connections
    # The requests are counted, although only HAProxy has handled them.
    await wait_until_async(lambda: bed.manager.total("requests") == 2, 5, "the report")


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/v1/chat/%63ompletions", "/v1/chat%2Fcompletions", "/v1/embeddings"],
)
async def test_tokens_of_language_models_are_counted(
    bed: Bed, upstream: Upstream, path: str
) -> None:
    """HAProxy does not forward requests whose response has `usage` by itself, whatever the form of
    the path.
    """
    url = URL(bed.url(f"/llm{path}"), encoded=True)
    async with bed.http.post(url, json={"messages": []}) as response:
        assert (await response.json())["usage"]["prompt_tokens"] == 7
    assert not was_passed_on(upstream)
    await wait_until_async(lambda: bed.manager.total("requests"), 5, "the report")
    tokens = [token for report in bed.manager.reports for token in report["tokens"]]
    assert [(each["input_tokens"], each["output_tokens"]) for each in tokens] == [(7, 3)]


@pytest.mark.parametrize("path", ["/V1/Chat/Completions", "/x%zz"])
async def test_path_that_may_be_one_of_a_language_model_is_passed_to_the_gateway(
    bed: Bed, upstream: Upstream, path: str
) -> None:
    async with bed.http.get(URL(bed.url(path), encoded=True)) as response:
        assert response.status == 200
    assert not was_passed_on(upstream)


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
    haproxy.send_signal(signal.SIGKILL)
    # The listening socket remains open, so new connections are not refused.
    assert await status_of_a_new_client(bed) == 200
    await wait_until_async(lambda: haproxy.starts == 2 and haproxy.is_current, 5, "the maps")
    assert await status_of_a_new_client(bed) == 200
    assert was_passed_on(upstream)


async def test_haproxy_is_current_only_with_all_maps(bed: Bed, upstream: Upstream) -> None:
    many = tuple(token_route(f"t{number}") for number in range(5000))
    await bed.set(endpoint_route(upstream.route(), tokens=(*many, token_route())))
    (haproxy,) = bed.haproxies
    haproxy.send_signal(signal.SIGKILL)
    async with asyncio.timeout(10):
        # Check the condition at every step of the event loop, so that the next request is sent at
        # once.
        while haproxy.starts != 2 or not haproxy.is_current:  # noqa: ASYNC110
            await asyncio.sleep(0)
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


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_requests_without_a_token_end_when_the_endpoint_is_not_public_any_more(
    bed: Bed, upstream: Upstream, is_deleted: bool
) -> None:
    await bed.set(endpoint_route(upstream.route(), is_public=True, tokens=()))
    headers = {"Authorization": ""}
    async with bed.http.get(bed.url("/stream"), headers=headers) as running:
        await running.content.readuntil(b"\n\n")
        await bed.set(*([] if is_deleted else [endpoint_route(upstream.route())]))
        with pytest.raises(aiohttp.ClientPayloadError):
            await asyncio.wait_for(running.read(), 5)
    assert was_passed_on(upstream)


async def answer(bed: Bed, text: str) -> bytes:
    """Return the response to a request with the endpoint's token."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.gateways[0].port)
    bed.stack.callback(writer.close)
    line, _, more = text.partition("\n")
    head = f"{line} HTTP/1.1\nHost: h\nAuthorization: Bearer {TOKEN}\n{more}\n"
    writer.write(head.replace("\n", "\r\n").encode())
    return await reader.readuntil(b"\r\n\r\n")


def errors(bed: Bed) -> list[tuple[int, int]]:
    """Return the errors of endpoint and revision in all reports with requests."""
    return [
        (each["errors"], each["revisions"]["v1"]["errors"])
        for report in bed.manager.reports
        for each in report["endpoints"]
        if each["requests"]
    ]


async def test_errors_of_replicas_are_those_of_their_revision(bed: Bed, upstream: Upstream) -> None:
    upstream.is_healthy = False
    async with bed.http.get(bed.url("/health")) as response:
        assert response.status == 503
    await wait_until_async(lambda: bed.manager.total("requests"), 5, "the counters")
    assert errors(bed) == [(1, 1)]


async def test_request_for_grpc_ends_no_other_request(bed: Bed, upstream: Upstream) -> None:
    """The HTTP server of the replica receives the gRPC request as an ordinary request."""
    (replica,) = bed.gateways[0].routes.by_name[b"chat"].replicas.values()
    probed_at = replica.probed_at
    head = await answer(
        bed,
        "POST /services/bai-serve/chat/x\nContent-Type: application/grpc\nContent-Length: 0\n",
    )
    assert head.startswith(b"HTTP/1.1 200 ")
    await wait_until_async(lambda: bed.manager.total("requests"), 5, "the counters")
    # The request does not count as an error of the revision.
    assert errors(bed) == [(0, 0)]
    assert replica.is_ready and replica.probed_at == probed_at


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("GET http://h/services/bai-serve/chat/echo\n", b"404"),
        ("GET /services/bai-serve/chat/echo\nConnection: keep-alive\nConnection: x\n", b"200"),
        (
            "GET /services/bai-serve/chat/echo\nConnection: upgrade\nUpgrade: websocket\n"
            "Upgrade: h2c\n",
            b"200",
        ),
    ],
)
async def test_unusual_heads_are_passed_to_the_gateway(
    bed: Bed, upstream: Upstream, text: str, status: bytes
) -> None:
    assert (await answer(bed, text)).split()[1] == status
    assert not any(was_passed_on(upstream) for _ in upstream.requests)


async def test_body_of_http_2_without_a_length_is_limited(bed: Bed, upstream: Upstream) -> None:
    await bed.set(endpoint_route(upstream.route(), max_body_bytes=1000))
    process = await asyncio.create_subprocess_exec(
        "curl", "--silent", "--http2-prior-knowledge", "--request", "DELETE", "--upload-file", "-",
        "--header", f"Authorization: Bearer {TOKEN}", "--output", "/dev/null",
        "--write-out", "%{http_version} %{http_code}", bed.url("/echo"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate(b"x" * 1001)
    assert output == b"2 413"


@pytest.mark.parametrize(("length", "is_passed_on"), [(1000, True), (200_000, False)])
async def test_slow_body_occupies_no_slot_of_a_replica(
    bed: Bed, upstream: Upstream, length: int, is_passed_on: bool
) -> None:
    await bed.set(endpoint_route(upstream.route(), max_concurrent_per_replica=1))
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.gateways[0].port)
    head = (
        "POST /services/bai-serve/chat/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
    )
    writer.write(head.encode() + bytes(length - 1))
    if is_passed_on:
        # This request gets the only slot of the replica, so the incomplete request does not occupy
        # it.
        async with bed.http.get(bed.url("/echo")) as response:
            assert response.status == 200
        assert len(upstream.requests) == 1
    else:
        gateway = bed.gateways[0]
        await wait_until_async(lambda: gateway.connections, 5, "the gateway has the request")
    writer.write(b"x")
    assert f'"bytes": {length}'.encode() in await reader.read()
    assert was_passed_on(upstream) == is_passed_on
    writer.close()


async def test_slow_and_idle_clients_end(
    bed: Bed, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that do not send the head or the body, and a client that never reads the response."""
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "STALLED_SECONDS"):
        monkeypatch.setattr(configuration, name, 1.0)
    await bed.gateway()
    await bed.ready(gateway=1)
    port = bed.gateways[1].port
    path = "GET /services/bai-serve/chat"
    headers = f" HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n"
    found = []
    for sent in (f"{path}/echo HT", f"{path}/echo{headers}Content-Length: 100\r\n\r\nx"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        bed.stack.callback(writer.close)
        writer.write(sent.encode())
        found.append((await reader.readline()).split()[1])
    assert found == [b"408", b"408"]
    assert not upstream.requests
    silent, writer = await asyncio.open_connection("127.0.0.1", port)
    bed.stack.callback(writer.close)
    async with asyncio.timeout(10):
        await silent.read()  # The connection is closed.
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
    bed.stack.callback(writer.close)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(f"{path}/endless{headers}\r\n".encode())
    await wait_until_async(lambda: upstream.cancelled == 1, 10, "end at the replica")


async def test_a_thousand_idle_connections_do_not_disturb_requests(
    bed: Bed, upstream: Upstream
) -> None:
    port = bed.gateways[0].port
    opened = [asyncio.open_connection("127.0.0.1", port) for _ in range(1000)]
    for _, writer in await asyncio.gather(*opened):
        bed.stack.callback(writer.close)
    async with bed.http.get(bed.url("/echo")) as response:
        assert response.status == 200
    assert was_passed_on(upstream)
    # Idle connections occupy no connection of the gateway itself.
    assert not bed.gateways[0].connections


async def test_pools_of_deleted_endpoints_are_used_again(bed: Bed) -> None:
    """Over time, there are more endpoints and revisions than pools and slots."""
    upstream = await bed.upstream()
    await bed.manager.set()
    await bed.gateway()
    (haproxy,) = bed.haproxies
    for number in range(10):
        route = upstream.route(id=f"r{number}", revision_id=f"v{number}")
        token = token_route(id=f"t{number}")
        await bed.manager.set(
            endpoint_route(
                route, id=f"e{number}", name=f"n{number}", weights={f"v{number}": 1},
                tokens=(token,),
            )
        )  # fmt: skip
        await bed.ready()
        await bed.applied()
        async with bed.http.get(bed.url("/echo", name=f"n{number}")) as response:
            assert response.status == 200
        assert was_passed_on(upstream)
    await bed.set()
    assert haproxy.starts == 1


async def test_host_name_with_a_slash_chooses_no_revision(bed: Bed) -> None:
    replicas = [await bed.upstream(name) for name in ("r1", "r2")]
    routes = [
        replica.route(revision_id=name)
        for replica, name in zip(replicas, ("v1", "v2"), strict=True)
    ]
    await bed.manager.set(endpoint_route(*routes, is_public=True, weights={"v1": 1, "v2": 1}))
    await bed.gateway(domain=b"serve.example.org")
    await bed.ready(2)
    address = f"http://127.0.0.1:{bed.gateways[0].port}/echo"
    for key in ("chat/1", "chat/:1"):
        headers = {"Host": f"{key}.serve.example.org"}
        async with bed.http.get(address, headers=headers) as response:
            assert response.status in (400, 404)


def test_entries_of_tokens_are_computed_only_after_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[float] = []

    def entries(route: EndpointRoute, now: float) -> Iterator[tuple[str, str]]:
        computed.append(now)
        return token_entries(route, now)

    monkeypatch.setattr("bai_services.gateway.haproxy.slots.token_entries", entries)
    slots = Slots.create(1, 1)
    route = endpoint_route(tokens=(token_route(expires_at=5.0), token_route("b", expires_at=9.0)))

    def undecided(route: EndpointRoute, now: float) -> int:
        wanted = slots.wanted([Endpoint(route)], now)
        return list(wanted.maps["tokens"].values()).count(UNDECIDED)

    assert [undecided(route, now) for now in (1, 4, 5, 6, 9, 10)] == [0, 0, 1, 1, 2, 2]
    assert computed == [1, 5, 9]
    assert undecided(replace(route, max_queue=3), 11) == 2
    assert undecided(replace(route, tokens=()), 12) == 0
    assert computed == [1, 5, 9, 12]


def test_requests_of_a_replica_are_the_sum_of_its_slots() -> None:
    slots = Slots.create(2, 1)
    route = ReplicaRoute("r1", "v1", "http://127.0.0.1:9", "a", False)
    endpoint = Endpoint(endpoint_route(route))
    replica = endpoint.replicas["r1"]
    replica.is_ready = True
    slots.wanted([endpoint], 0)
    # Another secret needs another pool; the slot in the first one can still have requests.
    endpoint.update(endpoint_route(replace(route, secret="b")))
    slots.wanted([endpoint], 0)
    first, second = (pool.slots[0] for pool in slots.pools)
    second.count(3)
    assert (first.replica, second.replica, replica.elsewhere) == (replica, replica, 4)
    # The first slot is freed when the replica drains; the second one still has requests.
    first.count(0)
    first.running = 0
    endpoint.update(endpoint_route(replace(route, secret="b", is_draining=True)))
    slots.wanted([endpoint], 0)
    assert (first.replica, second.replica, replica.elsewhere) == (None, replica, 3)
    assert not replica.is_drained


async def test_haproxy_that_ends_during_an_answer_is_unavailable(tmp_path: Path) -> None:
    async def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"# pxname,svname,")
        writer.close()

    server = await asyncio.start_unix_server(end, str(tmp_path / "control"))
    with pytest.raises(Unavailable):
        await Runtime(tmp_path / "control").statistics()
    server.close()


@asynccontextmanager
async def control_socket(path: Path, answer: bytes) -> AsyncIterator[list[bytes]]:
    """Yield the lines of commands that a stand-in of HAProxy receives."""
    lines: list[bytes] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readuntil(b"\n"))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(respond, str(path))
    yield lines
    server.close()


async def test_statistics_may_have_quoted_texts(tmp_path: Path) -> None:
    """HAProxy quotes texts with commas, quotes and line ends, as RFC 4180 describes."""
    table = b'# pxname,svname,last_agt,scur,\npool0,s1,"a, ""b""\nc",3,\npool0,BACKEND,,4,\n\n'
    async with control_socket(tmp_path / "control", table):
        first, second = await Runtime(tmp_path / "control").statistics()
    assert (first["svname"], first["last_agt"], first["scur"]) == ("s1", 'a, "b"\nc', "3")
    assert (second["svname"], second["scur"]) == ("BACKEND", "4")


async def test_lines_of_commands_are_limited_in_bytes(tmp_path: Path) -> None:
    commands = [f"add map tokens {'é' * 1000}{number} x" for number in range(50)]
    async with control_socket(tmp_path / "control", b"\n") as lines:
        await Runtime(tmp_path / "control").change(commands)
    assert max(map(len, lines)) <= MAX_LINE_BYTES
    assert b";".join(line.strip() for line in lines).decode().split(";") == commands


@pytest.mark.usefixtures("bed")  # the fixture skips the test if HAProxy is not installed
async def test_socket_with_an_ipv6_address_and_a_high_descriptor() -> None:
    settings = Settings(
        "/p", "", pools=1, slots=1, threads=1, queue_seconds=1, max_connections=12,
        max_owner_requests=6,
    )  # fmt: skip
    with ExitStack() as stack:
        # HAProxy with few connections accepts only low file descriptors.
        for _ in range(500):
            stack.enter_context(open(os.devnull))  # noqa: ASYNC230
        process = HaproxyProcess(settings, "::1", 0)
    await process.start()
    _, writer = await asyncio.open_connection("::1", process.port)
    writer.close()
    await process.stop(0)


def test_address_with_an_interface_name_is_invalid_for_haproxy() -> None:
    assert is_address("10.0.0.1") and is_address("fe80::1")
    assert not is_address("fe80::1%a;show")


async def test_endpoint_without_a_slot_is_served_by_the_gateway(bed: Bed) -> None:
    # Start one replica more than HAProxy has slots.
    replicas = [await bed.upstream(f"r{number}") for number in range(5)]
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
