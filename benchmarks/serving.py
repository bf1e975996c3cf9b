"""Cost of the gateway: throughput, latency and streams, and requests lost while replicas change.

All ratios and differences are relative to the same server without gateway in the same run. Server,
gateway and load generator run in separate processes on this machine. The load generator of the
throughput is wrk where it is installed (Debian package ``wrk``). Otherwise it is this process,
which needs more CPU time than HAProxy and limits the result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil
import uvloop
from aiohttp import web

from bai_services.core.serving.gateway_json import table_as_json
from bai_services.core.serving.gateway_records import (
    EndpointRoute,
    ReplicaRoute,
    RoutingTable,
    TokenRoute,
)
from bai_services.core.serving.token_limits import digest_of
from bai_services.gateway.haproxy.process import find_program
from tests.testbed.wait import wait_until_async

from . import serving_starts

CONNECTIONS = 32
SECONDS = 2.0
ROUNDS = 5
# Latency is measured over one connection: at full load, queueing dominates it.
LATENCY_REQUESTS = 3000
TOKENS = 300
STREAMS = 3
REPLICA_CHANGES = 200
REQUESTS_PER_CHANGE = 50
BODY = json.dumps({"text": "x" * 980}).encode()
TOKEN = "token-of-the-benchmark"
WRK = shutil.which("wrk")
SERVING = "/services/bai-serve/model"


# The server: an aiohttp application, like many model servers in Python.


async def _small(_: web.Request) -> web.Response:
    return web.Response(body=BODY, content_type="application/json")


async def _tokens(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(TOKENS):
        # The time of sending: server and load generator share a clock.
        await response.write(f"data: {time.monotonic_ns()} {number}\n\n".encode())
        await asyncio.sleep(0.002)
    return response


def _serve(sender: Any) -> None:
    async def run() -> None:
        app = web.Application()
        app.router.add_get("/small", _small)
        app.router.add_get("/tokens", _tokens)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        sender.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    uvloop.run(run())


class Manager:
    """Sends the routing table; ignores reports except for drained replicas."""

    def __init__(self) -> None:
        self.table = RoutingTable("0", ())
        self.drained: set[str] = set()
        self.changed = asyncio.Condition()

    async def start(self) -> int:
        app = web.Application()
        app.router.add_get("/api/v1/gateway/routes", self._routes)
        app.router.add_post("/api/v1/gateway/reports", self._report)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    async def set(self, *replicas: ReplicaRoute) -> None:
        endpoint = EndpointRoute(
            id="e", name="model", owner_id="o1", is_public=False, is_paused=False, weights={"v": 1},
            replicas=replicas, health_path="/small", max_queue=1000, queue_seconds=30,
            max_concurrent_per_replica=1000, request_seconds=30, max_body_bytes=2**20,
            tokens=(TokenRoute("t", digest_of(TOKEN), (), None, None, None),),
        )  # fmt: skip
        async with self.changed:
            self.table = RoutingTable(str(int(self.table.version) + 1), (endpoint,))
            self.changed.notify_all()

    async def _routes(self, request: web.Request) -> web.Response:
        known = request.query["version"]
        async with self.changed:
            await self.changed.wait_for(lambda: self.table.version != known)
        return web.json_response(table_as_json(self.table))

    async def _report(self, request: web.Request) -> web.Response:
        document = await request.json()
        async with self.changed:
            self.drained |= set(document["drained"])
            self.changed.notify_all()
        return web.Response(status=204)


# The load generator: raw connections, which need little CPU time.


def _head(host: str, path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    ).encode()


class _Connection(asyncio.Protocol):
    """Sends a request as soon as the previous response has arrived."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.latencies: list[float] = []
        self.failures = 0
        self.is_stopping = False
        self.done = asyncio.get_running_loop().create_future()
        self._received = bytearray()
        self._began = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self.transport = transport
        self.send()

    def send(self) -> None:
        assert self.transport is not None
        self._received.clear()
        self._began = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0 or len(self._received) < end + 4 + len(BODY):
            if not self._received.startswith(b"HTTP/1.1 200") and end >= 0:
                self.failures += 1
                self.finish()
            return
        self.failures += not self._received.startswith(b"HTTP/1.1 200")
        self.latencies.append(time.perf_counter() - self._began)
        if self.is_stopping:
            self.finish()
        else:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.failures += 1
            self.finish()

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        if self.transport is not None:
            self.transport.close()


async def _open(port: int, path: str, count: int) -> list[_Connection]:
    loop = asyncio.get_running_loop()
    request = _head(f"127.0.0.1:{port}", path)
    opened = []
    for _ in range(count):
        _, connection = await loop.create_connection(
            lambda: _Connection(request), "127.0.0.1", port
        )
        opened.append(connection)
    return opened


async def _stop(connections: list[_Connection]) -> None:
    for connection in connections:
        connection.is_stopping = True
    await asyncio.gather(*(connection.done for connection in connections))


async def throughput(port: int, path: str, pid: int) -> tuple[float, float]:
    """Return requests per second over 32 connections, and a process's CPU microseconds per request.

    The CPU time does not depend on what else runs on the machine.
    """
    if WRK is not None:
        return await _throughput_of_wrk(WRK, port, path, pid)
    connections = await _open(port, path, CONNECTIONS)
    await asyncio.sleep(0.3)
    used = _cpu_seconds(pid)
    before, began = sum(len(c.latencies) for c in connections), time.perf_counter()
    await asyncio.sleep(SECONDS)
    count = sum(len(c.latencies) for c in connections) - before
    seconds = time.perf_counter() - began
    used = _cpu_seconds(pid) - used
    await _stop(connections)
    if any(connection.failures for connection in connections):
        raise RuntimeError(f"requests to {path} failed")
    return count / seconds, used / count * 1e6


async def _throughput_of_wrk(wrk: str, port: int, path: str, pid: int) -> tuple[float, float]:
    used = _cpu_seconds(pid)
    process = await asyncio.create_subprocess_exec(
        wrk, "--threads=1", f"--connections={CONNECTIONS}", f"--duration={SECONDS:g}s",
        f"--header=Authorization: Bearer {TOKEN}", f"http://127.0.0.1:{port}{path}",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output = (await process.communicate())[0].decode()
    used = _cpu_seconds(pid) - used
    count = re.search(r"(\d+) requests in", output)
    rate = re.search(r"Requests/sec: *([\d.]+)", output)
    if count is None or rate is None or "Non-2xx" in output or "Socket errors" in output:
        raise RuntimeError(f"requests to {path} failed:\n{output}")
    return float(rate[1]), used / int(count[1]) * 1e6


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def p99_ms(port: int, path: str) -> float:
    """Return the 99th percentile of the latency of requests over one connection."""
    (connection,) = await _open(port, path, 1)
    await wait_until_async(lambda: len(connection.latencies) >= LATENCY_REQUESTS, 120, "requests")
    await _stop([connection])
    return statistics.quantiles(connection.latencies[100:], n=100)[-1] * 1000


async def token_ms(port: int, path: str) -> float:
    """Return the mean milliseconds from the sending of a token to its arrival."""
    delays = []
    for _ in range(STREAMS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_head(f"127.0.0.1:{port}", path))
        found = 0
        while found < TOKENS:
            line = await reader.readline()
            if not line:
                raise RuntimeError("the stream was cut off")
            if line.startswith(b"data: "):
                found += 1
                delays.append(time.monotonic_ns() - int(line.split()[1]))
        writer.close()
    return statistics.mean(delays) / 1e6


async def lost_requests(manager: Manager, gateway: int, ports: list[int]) -> dict[str, Any]:
    """Replace the replica 200 times under load; drain each old replica first."""
    connections = await _open(gateway, f"{SERVING}/small", CONNECTIONS // 2)
    began = time.perf_counter()
    current = _replica("first", ports[0])
    await manager.set(current)
    for number in range(REPLICA_CHANGES):
        following = _replica(f"r{number}", ports[number % len(ports)])
        old = ReplicaRoute(current.id, "v", current.url, "", True)
        await manager.set(old, following)
        async with manager.changed:
            await manager.changed.wait_for(lambda old=old: old.id in manager.drained)
        await manager.set(following)
        current = following
        # Let the new replica serve requests before it is replaced.
        goal = sum(len(connection.latencies) for connection in connections) + REQUESTS_PER_CHANGE
        await wait_until_async(
            lambda goal=goal: sum(len(c.latencies) for c in connections) >= goal, 30, "requests"
        )
    seconds = time.perf_counter() - began
    await _stop(connections)
    return {
        "requests_lost": sum(connection.failures for connection in connections),
        "requests_during_changes": sum(len(connection.latencies) for connection in connections),
        "replica_changes": REPLICA_CHANGES,
        "seconds_per_change": round(seconds / REPLICA_CHANGES, 3),
    }


def _replica(name: str, port: int) -> ReplicaRoute:
    return ReplicaRoute(name, "v", f"http://127.0.0.1:{port}", "", False)


def _started_server() -> tuple[multiprocessing.Process, int]:
    receiver, sender = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve, args=(sender,), daemon=True)
    process.start()
    return process, int(receiver.recv())


@asynccontextmanager
async def _gateway(manager_port: int, engine: str) -> AsyncIterator[tuple[int, int]]:
    """Start a gateway; yield its port and the id of the process that serves."""
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"
        secret.write_text("secret")
        environ = {
            **os.environ,
            "BAI_MANAGER_URL": f"http://127.0.0.1:{manager_port}",
            "BAI_GATEWAY_TOKEN_FILE": str(secret),
            "BAI_GATEWAY_PORT": "0",
            "BAI_GATEWAY_ENGINE": engine,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bai_services.gateway",
            env=environ, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        try:
            line = ""
            while "listens" not in line:
                line = (await process.stderr.readline()).decode()
                if not line:
                    raise RuntimeError("the gateway does not start")
            children = psutil.Process(process.pid).children()
            yield int(line.rsplit(":", 1)[1]), children[0].pid if children else process.pid
        finally:
            process.kill()
            await process.wait()


@asynccontextmanager
async def _plain_haproxy(server_port: int) -> AsyncIterator[tuple[int, int]]:
    """Start HAProxy without rules: no configuration of it forwards requests faster.

    It checks no token and hides nothing, so it is not a gateway, but an upper bound for the speed
    of one.
    """
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listen:
        file = Path(folder) / "haproxy.cfg"
        file.write_text(
            "defaults\n  mode http\n  option http-no-delay\n  http-reuse safe\n"
            "  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
            f"frontend clients\n  bind fd@{listen.fileno()}\n"
            f"  http-request replace-path ^{SERVING}(.*)$ \\1\n  default_backend server\n"
            f"backend server\n  server s 127.0.0.1:{server_port}\n"
        )
        process = await asyncio.create_subprocess_exec(
            find_program(), "-db", "-q", "-f", str(file), pass_fds=(listen.fileno(),)
        )
        try:
            yield int(listen.getsockname()[1]), process.pid
        finally:
            process.kill()
            await process.wait()


async def measure() -> dict[str, Any]:
    servers = [_started_server() for _ in range(2)]
    ports = [port for _, port in servers]
    managers = [Manager(), Manager()]
    for manager in managers:
        await manager.set(_replica("first", ports[0]))
    server_pid = servers[0][0].pid
    assert server_pid is not None
    try:
        async with (
            _gateway(await managers[0].start(), "builtin") as builtin,
            _gateway(await managers[1].start(), "haproxy") as haproxy,
            _plain_haproxy(ports[0]) as plain,
        ):
            targets = {
                "direct": Target(ports[0], "", server_pid),
                "gateway": Target(builtin[0], SERVING, builtin[1]),
                "haproxy": Target(haproxy[0], SERVING, haproxy[1]),
                "plain_haproxy": Target(plain[0], SERVING, plain[1]),
            }
            for port in (builtin[0], haproxy[0], plain[0]):
                await serving(port)
            # Alternate the targets, because the speed of the machine changes.
            for _ in range(ROUNDS):
                for target in targets.values():
                    await target.measure()
            direct, through, fast, bound = targets.values()
            return {
                "load_generator": "asyncio" if WRK is None else "wrk",
                "throughput_ratio": through.ratio(direct),
                "haproxy_throughput_ratio": fast.ratio(direct),
                # What HAProxy reaches without rules on this machine.
                "plain_haproxy_throughput_ratio": bound.ratio(direct),
                **{f"{name}_per_second": round(each.rate) for name, each in targets.items()},
                **{f"{name}_cpu_us": round(each.cpu) for name, each in targets.items()},
                "added_p99_ms": _added(through.p99s, direct.p99s),
                "haproxy_added_p99_ms": _added(fast.p99s, direct.p99s),
                "stream_added_ms": _added(through.streams, direct.streams),
                "haproxy_stream_added_ms": _added(fast.streams, direct.streams),
                **await lost_requests(managers[0], builtin[0], ports),
                **{
                    f"haproxy_{name}": value
                    for name, value in (await lost_requests(managers[1], haproxy[0], ports)).items()
                },
            }
    finally:
        for process, _ in servers:
            process.terminate()


@dataclass
class Target:
    """The server or a gateway in front of it, with the results of all rounds."""

    port: int
    base: str
    pid: int
    rates: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)
    streams: list[float] = field(default_factory=list)

    async def measure(self) -> None:
        rate, used = await throughput(self.port, f"{self.base}/small", self.pid)
        self.rates.append(rate)
        self.cpus.append(used)
        self.p99s.append(await p99_ms(self.port, f"{self.base}/small"))
        self.streams.append(await token_ms(self.port, f"{self.base}/tokens"))

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def cpu(self) -> float:
        return statistics.median(self.cpus)

    def ratio(self, direct: Target) -> float:
        ratios = [own / other for own, other in zip(self.rates, direct.rates, strict=True)]
        return round(statistics.median(ratios), 3)


async def serving(gateway: int) -> None:
    """Wait until the gateway has routes and a ready replica."""
    for _ in range(100):
        (connection,) = await _open(gateway, f"{SERVING}/small", 1)
        await _stop([connection])
        if not connection.failures:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the gateway does not serve")


def _added(through: list[float], direct: list[float]) -> float:
    pairs = zip(through, direct, strict=True)
    return round(statistics.median(own - other for own, other in pairs), 3)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--no-hub", action="store_true", help="without the delays in a running Hub")
    spec = parser.parse_args()
    figures = uvloop.run(measure())
    if not spec.no_hub:
        figures |= serving_starts.measure()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
