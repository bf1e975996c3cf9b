"""A gateway with a stand-in manager and a real HTTP server as replica, all in this process."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bai_services.api.serving.bodies import GatewayReport
from bai_services.client import Token
from bai_services.core.serving.gateway_json import table_as_json
from bai_services.core.serving.gateway_records import (
    EndpointRoute,
    ReplicaRoute,
    RoutingTable,
    TokenRoute,
)
from bai_services.gateway.app import run_gateway
from bai_services.gateway.haproxy.configuration import Settings
from bai_services.gateway.haproxy.engine import Haproxy
from bai_services.gateway.routes import Routes
from bai_services.gateway.server import GatewayServer
from bai_services.service_client import ServiceClient
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until_async

SECRET = "secret-of-the-gateways"
TOKEN = "token-of-the-endpoint"


def token_route(text: str = TOKEN, **changes: Any) -> TokenRoute:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return replace(TokenRoute(f"t-{text}", digest, (), None, None, None), **changes)


class StandInManager:
    """Implements both routes that gateways call, and records the reports."""

    def __init__(self) -> None:
        self.table = RoutingTable("0", ())
        self.reports: list[dict[str, Any]] = []
        self.lost_answers = 0  # number of reports whose response is lost
        self.refused: list[str] = []  # ids of reports with a number out of range
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/api/v1/gateway/routes", self._routes)
        app.router.add_post("/api/v1/gateway/reports", self._report)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def set(self, *endpoints: EndpointRoute) -> None:
        async with self._changed:
            self.table = RoutingTable(str(int(self.table.version) + 1), endpoints)
            self._changed.notify_all()

    async def _routes(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {SECRET}"
        known, seconds = request.query["version"], float(request.query["wait"])
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self.table.version != known)
        except TimeoutError:
            return web.Response(status=204)
        return web.json_response(table_as_json(self.table))

    async def _report(self, request: web.Request) -> web.Response:
        report = await request.json()
        try:
            GatewayReport.model_validate(report)
        except ValueError:
            self.refused.append(report["report_id"])
            refusal = {"error": "invalid-request", "message": "the report is invalid"}
            return web.json_response(refusal, status=400)
        self.reports.append(report)
        if self.lost_answers:
            self.lost_answers -= 1
            return web.Response(status=500)
        return web.Response(status=204)

    def total(self, field_name: str) -> int:
        """Return the sum of a counter of endpoints over all reports with different ids."""
        distinct = {report["report_id"]: report for report in self.reports}
        return sum(
            endpoint[field_name] for report in distinct.values() for endpoint in report["endpoints"]
        )


class Upstream:
    """A model server: plain, streamed and echoing responses, and a websocket."""

    def __init__(self, name: str = "r1") -> None:
        self.name = name
        self.requests: list[web.Request] = []
        self.release = asyncio.Event()
        self.is_healthy = True
        self.running = 0
        self.cancelled = 0
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=2**31)
        app.router.add_get("/health", self._health)
        app.router.add_route("*", "/{path:.*}", self._any)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def route(self, **changes: Any) -> ReplicaRoute:
        url = f"http://127.0.0.1:{self.port}"
        return replace(ReplicaRoute(self.name, "v1", url, "", False), **changes)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.is_healthy else 503)

    async def _any(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.running += 1
        try:
            handler = getattr(self, f"_{request.path.strip('/').replace('/', '_')}", self._echo)
            response: web.StreamResponse = await handler(request)
            return response
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def _echo(self, request: web.Request) -> web.Response:
        body = await request.read()
        document = {
            "replica": self.name,
            "method": request.method,
            "path": request.raw_path,
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        return web.json_response(document, headers={"Set-Cookie": "a=b", "Keep-Alive": "1"})

    async def _late(self, request: web.Request) -> web.Response:
        """Read the body only after the release."""
        await self.release.wait()
        count = 0
        async for piece in request.content.iter_any():
            count += len(piece)
        return web.json_response({"bytes": count})

    async def _wait(self, _: web.Request) -> web.Response:
        await self.release.wait()
        return web.json_response({"replica": self.name})

    async def _usage(self, _: web.Request) -> web.Response:
        return web.json_response({"usage": {"prompt_tokens": 7, "completion_tokens": 3}})

    _llm_v1_chat_completions = _llm_v1_embeddings = _usage

    async def _huge_usage(self, _: web.Request) -> web.Response:
        return web.json_response({"usage": {"prompt_tokens": 10**9, "completion_tokens": 10**9}})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"delta": "a"}\n\n')
        await self.release.wait()
        await response.write(b'data: {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\n')
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        piece = bytes(65536)
        self.written = 0
        while True:
            await response.write(piece)
            self.written += len(piece)

    async def _broken(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"part")
        assert request.transport is not None
        request.transport.abort()
        return response

    async def _ws(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=["chat"])
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"echo {message.data}")
        return socket


@dataclass
class Bed:
    """The manager, gateways and replicas of one test."""

    stack: AsyncExitStack
    manager: StandInManager
    http: aiohttp.ClientSession
    engine: str = "builtin"
    gateways: list[GatewayServer] = field(default_factory=list)
    haproxies: list[Haproxy] = field(default_factory=list)

    async def gateway(self, **settings: Any) -> GatewayServer:
        """Start a gateway and wait until it has a table."""
        server = GatewayServer(Routes(), **settings)
        stop = asyncio.Event()
        client = ServiceClient(f"http://127.0.0.1:{self.manager.port}", Token(SECRET))
        haproxy = self._haproxy(server) if self.engine == "haproxy" else None
        task = asyncio.create_task(
            run_gateway(server, client, "127.0.0.1", 0, stop, haproxy=haproxy)
        )

        async def end() -> None:
            stop.set()
            await task
            await server.stop()
            await client.close()

        self.stack.push_async_callback(end)
        await wait_until_async(lambda: server.routes.is_known or task.done(), 5, "routes")
        if task.done():
            task.result()
        self.gateways.append(server)
        return server

    def _haproxy(self, server: GatewayServer) -> Haproxy:
        settings = Settings(
            prefix=server.prefix.decode(), domain=server.domain.decode(), pools=4, slots=4,
            threads=1, queue_seconds=30, max_connections=min(2000, server.max_connections),
            max_owner_requests=server.max_owner_requests,
        )  # fmt: skip
        haproxy = Haproxy(server, settings, "127.0.0.1", 0)
        self.haproxies.append(haproxy)
        return haproxy

    async def set(self, *endpoints: EndpointRoute) -> None:
        """Change the routing table, and wait until the gateways use it."""
        await self.manager.set(*endpoints)
        await self.applied()

    async def applied(self) -> None:
        """Wait until the gateways use the current table, and HAProxy in front of them, too."""
        await wait_until_async(
            lambda: all(
                server.routes.version == self.manager.table.version for server in self.gateways
            ) and all(haproxy.is_current for haproxy in self.haproxies),
            5, "the current table",
        )  # fmt: skip

    async def upstream(self, name: str = "r1") -> Upstream:
        upstream = Upstream(name)
        await upstream.start()
        self.stack.push_async_callback(upstream.stop)
        return upstream

    async def ready(self, count: int = 1, gateway: int = 0) -> None:
        """Wait until ``count`` replicas are ready at a gateway."""
        routes = self.gateways[gateway].routes
        await wait_until_async(
            lambda: sum(
                replica.is_ready
                for endpoint in routes.by_name.values()
                for replica in endpoint.replicas.values()
            ) >= count,
            5, "ready replicas",
        )  # fmt: skip
        await self.applied()

    async def report(self) -> None:
        """Let each gateway send a report now."""
        for server in self.gateways:
            sent = len(self.manager.reports)
            server.drained()
            await wait_until_async(
                lambda sent=sent: len(self.manager.reports) > sent, 5, "a report of the gateway"
            )

    def url(self, path: str, gateway: int = 0, name: str = "chat") -> str:
        port = self.gateways[gateway].port
        return f"http://127.0.0.1:{port}/services/bai-serve/{name}{path}"


def endpoint_route(*replicas: ReplicaRoute, **changes: Any) -> EndpointRoute:
    route = EndpointRoute(
        id="e1", name="chat", owner_id="o1", is_public=False, is_paused=False, weights={"v1": 1},
        replicas=replicas, tokens=(token_route(),), health_path="/health", max_queue=10,
        queue_seconds=30, max_concurrent_per_replica=100, request_seconds=30,
        max_body_bytes=2**30,
    )  # fmt: skip
    return replace(route, **changes)


# For tests of the contract that both engines must fulfil.
both_engines = pytest.mark.parametrize("engine", ["builtin", "haproxy"])


@pytest.fixture
def engine() -> str:
    return "builtin"


@pytest.fixture
async def bed(engine: str) -> AsyncIterator[Bed]:
    if engine == "haproxy" and shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None:
        skip_or_fail("haproxy", "HAProxy is not installed (scripts/testbed install)")
    async with AsyncExitStack() as stack:
        manager = StandInManager()
        await manager.start()
        stack.push_async_callback(manager.stop)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"})
        )
        yield Bed(stack, manager, http, engine)


@pytest.fixture
async def upstream(bed: Bed) -> Upstream:
    """The only replica of the endpoint `chat`; the gateway is ready."""
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route(secret="s3cret")))
    await bed.gateway()
    await bed.ready()
    return upstream
