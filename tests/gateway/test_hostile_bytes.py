"""Random bytes from clients and replicas cause no exception and leave no state of a request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from bai_services.core.serving.gateway_records import ReplicaRoute
from bai_services.gateway import limits
from bai_services.gateway.server import GatewayServer
from tests.testbed.wait import wait_until_async

from .conftest import TOKEN, Bed, Upstream, endpoint_route, token_route

CLIENTS, ROUNDS = 12, 25
METHODS = (b"GET", b"POST", b"HEAD", b"CONNECT", b"x")
PATHS = tuple(
    b"/services/bai-serve/chat" + path
    for path in (b"/echo", b"/wait", b"/stream", b"/usage", b"/broken", b"/ws", b"", b"/../x")
)
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
HEADERS = (
    f"Authorization: Bearer {TOKEN}\r\n".encode(), b"Content-Length: 5\r\n", b"X: \x00\r\n",
    b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", UPGRADE,
    b"Expect: 100-continue\r\n", b"Content-Length: x\r\n", b"Transfer-Encoding: gzip\r\n",
)  # fmt: skip
BODIES = (b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n", b"zz\r\n", b"x" * 70_000)
STATUSES = (b"200 OK", b"204 x", b"304 x", b"101 x", b"100 x", b"500 x", b"x")


@pytest.fixture
def problems() -> list[dict[str, Any]]:
    return []


def some(chance: random.Random, parts: tuple[bytes, ...]) -> bytes:
    return b"".join(chance.choice(parts) for _ in range(chance.randrange(4)))


def request(chance: random.Random) -> bytes:
    line = b"%b %b HTTP/1.%b\r\n" % (
        chance.choice(METHODS), chance.choice(PATHS), chance.choice((b"1", b"1", b"0"))
    )  # fmt: skip
    return line + HEADERS[0] + some(chance, HEADERS) + b"\r\n" + chance.choice(BODIES)


async def call(port: int, chance: random.Random) -> None:
    """Send a few requests in pieces, read a part of the responses, and disconnect."""
    with suppress(OSError, RuntimeError):  # the gateway may close the connection at any time
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(chance.randrange(1, 4)):
            data = request(chance)
            cut = chance.randrange(len(data))
            writer.write(data[:cut])
            await asyncio.sleep(0)
            writer.write(data[cut:])
        with suppress(TimeoutError):
            async with asyncio.timeout(chance.random() * 0.05):
                while await reader.read(65536):
                    pass
        writer.close()


async def call_often(
    gateway: GatewayServer, problems: list[dict[str, Any]], change: Callable[[], Awaitable[None]]
) -> None:
    """Call the endpoint while ``change`` changes its routes; then check that nothing remains."""
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    endpoint = gateway.routes.by_name[b"chat"]
    for number in range(ROUNDS):
        chances = [random.Random(number * CLIENTS + client) for client in range(CLIENTS)]
        await asyncio.gather(change(), *(call(gateway.port, chance) for chance in chances))

    def is_empty() -> bool:
        gateway.sweep(asyncio.get_running_loop().time() + 10 * limits.STALLED_SECONDS)
        return not gateway.connections

    await wait_until_async(is_empty, 10, "the end of all connections")
    assert problems == []
    running = [len(token.running) for token in endpoint.tokens.values()]
    assert (endpoint.in_flight, len(endpoint.queue), len(endpoint.anonymous)) == (0, 0, 0)
    assert not any(running)
    assert not any(each.outstanding for each in endpoint.replicas.values())


async def test_random_bytes_of_clients_cause_no_error(
    bed: Bed, upstream: Upstream, problems: list[dict[str, Any]]
) -> None:
    chance = random.Random(1)
    route = endpoint_route(upstream.route(), max_concurrent_per_replica=8, max_queue=5)

    async def change() -> None:
        replicas = (upstream.route(is_draining=chance.random() < 0.2),)
        await bed.manager.set(
            replace(
                route,
                tokens=(token_route(),) if chance.random() < 0.7 else (),
                replicas=replicas if chance.random() < 0.8 else (),
                is_public=chance.random() < 0.3,
                is_paused=chance.random() < 0.1,
            )
        )
        if chance.random() < 0.5:
            upstream.release.set()
        else:
            upstream.release.clear()

    await call_often(bed.gateways[0], problems, change)


async def test_random_bytes_of_replicas_cause_no_error(
    bed: Bed, problems: list[dict[str, Any]]
) -> None:
    chance = random.Random(2)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, RuntimeError, asyncio.LimitOverrunError):
            while chance.random() < 0.9:
                head = await reader.readuntil(b"\r\n\r\n")
                response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
                if not head.startswith(b"GET /health"):
                    line = b"HTTP/1.1 %b\r\n" % chance.choice(STATUSES)
                    response = line + some(chance, HEADERS) + b"\r\n" + chance.choice(BODIES)
                writer.write(response)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    bed.stack.callback(server.close)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    route = ReplicaRoute("r1", "v1", url, "", False)
    await bed.manager.set(endpoint_route(route, max_concurrent_per_replica=8))
    gateway = await bed.gateway()
    await bed.ready()

    async def no_change() -> None: ...

    await call_often(gateway, problems, no_change)
