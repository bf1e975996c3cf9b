"""The process `bai-gateway`: restart after a kill, shutdown, memory, open files and settings."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientError

from bai_services.core.operations.configuration import SETTINGS, Kind
from bai_services.gateway.app import ENVIRONMENT, OTHER_FILES, GatewayApp, raise_open_files
from bai_services.gateway.limits import MAX_CLIENT_CONNECTIONS
from bai_services.hub_settings import for_gateway
from tests.testbed.wait import wait_until_async

from .conftest import SECRET, Bed, both_engines, endpoint_route

# Memory by which a gateway may grow for two bodies of 100 MB. Its buffers need less than 1 MB.
MAX_GROWTH_BYTES = 16 * 2**20
BODY_MEGABYTES = 100


async def started(bed: Bed, folder: Path) -> tuple[asyncio.subprocess.Process, int]:
    """Start the process on a free port, which it logs."""
    secret = folder / "gateway-token"
    secret.write_text(SECRET)
    environ = {
        **os.environ,
        "BAI_MANAGER_URL": f"http://127.0.0.1:{bed.manager.port}",
        "BAI_GATEWAY_TOKEN_FILE": str(secret),
        "BAI_GATEWAY_PORT": "0",
        "BAI_GATEWAY_ENGINE": bed.engine,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bai_services.gateway", env=environ, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    line = ""
    while "listens" not in line:
        line = (await process.stderr.readline()).decode()
        assert line
    return process, int(line.rsplit(":", 1)[1])


async def wait_until_served(bed: Bed, port: int) -> None:
    async def is_served() -> bool:
        url = f"http://127.0.0.1:{port}/services/bai-serve/chat/echo"
        try:
            async with bed.http.get(url) as response:
                return response.status == 200
        except ClientError:
            return False

    await wait_until_async(is_served, 10, "a response")


@both_engines
async def test_killed_gateway_serves_again_from_the_managers_routes(
    bed: Bed, tmp_path: Path
) -> None:
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route()))
    for _ in range(2):
        process, port = await started(bed, tmp_path)
        await wait_until_served(bed, port)
        # CPU time instead of elapsed time, because the machine may be busy. On an idle machine, the
        # gateway serves within 2 s.
        times = psutil.Process(process.pid).cpu_times()
        assert times.user + times.system < 2
        process.kill()
        await process.wait()


@both_engines
async def test_memory_does_not_grow_with_bodies(bed: Bed, tmp_path: Path) -> None:
    """A request of 100 MB to a server that reads it late, and a response of the same size."""
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route()))
    process, port = await started(bed, tmp_path)
    await wait_until_served(bed, port)
    seen = psutil.Process(process.pid)

    def memory() -> int:
        return sum(each.memory_info().rss for each in (seen, *seen.children(recursive=True)))

    before = memory()
    url = f"http://127.0.0.1:{port}/services/bai-serve/chat"
    piece, counts = bytes(2**20), [0]

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(BODY_MEGABYTES):
            counts[-1] += 1
            yield piece

    def is_stalled() -> bool:
        counts.append(counts[-1])
        return counts[-1] > 0 and len(counts) > 8 and len(set(counts[-8:])) == 1

    headers = {"Content-Length": str(BODY_MEGABYTES * 2**20)}
    posted = bed.http.post(f"{url}/late", data=pieces(), headers=headers)
    posting = asyncio.create_task(posted.__aenter__())
    await wait_until_async(is_stalled, 20, "the client to be stalled")
    grown = [memory() - before]
    upstream.release.set()
    async with await posting as response:
        assert (await response.json())["bytes"] == BODY_MEGABYTES * 2**20
    async with bed.http.get(f"{url}/endless") as response:
        for _ in range(BODY_MEGABYTES):
            await response.content.readexactly(2**20)
        grown.append(memory() - before)
    process.kill()
    await process.wait()
    assert max(grown) < MAX_GROWTH_BYTES


@both_engines
async def test_stopped_gateway_ends_its_requests(bed: Bed, tmp_path: Path) -> None:
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route()))
    process, port = await started(bed, tmp_path)
    url = f"http://127.0.0.1:{port}/services/bai-serve/chat"
    await wait_until_served(bed, port)
    waiting = asyncio.create_task(bed.http.get(f"{url}/wait"))
    await wait_until_async(lambda: upstream.running, 10, "the request")
    process.send_signal(signal.SIGTERM)

    async def is_closed() -> bool:
        try:
            async with bed.http.get(f"http://127.0.0.1:{port}/health"):
                return False
        except ClientError:
            return True

    await wait_until_async(is_closed, 10, "the closed port")
    upstream.release.set()
    async with await waiting as response:
        assert response.status == 200
    assert await process.wait() == 0
    # The last report includes the requests that ended after the signal.
    assert bed.manager.total("requests") == len(upstream.requests)


async def test_gateway_raises_its_limit_of_open_files(bed: Bed, tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    process, _ = await started(bed, tmp_path)
    soft, _ = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    assert soft >= min(hard, 2 * MAX_CLIENT_CONNECTIONS)
    process.terminate()
    assert await process.wait() == 0


def test_connections_are_limited_by_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    assert raise_open_files(20_000) == (4096 - OTHER_FILES) // 2
    assert raised == [(4096, 4096)]
    assert raise_open_files(100) == 100


async def test_missing_settings_are_named(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bai_services.gateway", stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("BAI_")},
    )  # fmt: skip
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert "BAI_MANAGER_URL" in errors.decode()


def test_hub_passes_all_settings_to_the_gateway() -> None:
    variables = dict.fromkeys(ENVIRONMENT.values(), "")
    assert for_gateway(variables) == variables


def test_hub_passes_no_other_secret_to_the_gateway() -> None:
    secrets = {each.variable: "" for each in SETTINGS if each.kind is Kind.SECRET}
    assert for_gateway(secrets).keys() == {"BAI_GATEWAY_TOKEN_FILE", "BAI_METRICS_TOKEN_FILE"}


def test_each_variable_sets_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "manager_url": "http://10.0.0.5:8091/services/bai", "token_file": "/run/token",
        "host": "0.0.0.0", "port": 9000, "path_prefix": "/serve", "trusted_proxies": "10.0.0.1",
        "metrics_token_file": "/run/metrics", "domain": "serve.example.org", "engine": "haproxy",
    }  # fmt: skip
    assert values.keys() == ENVIRONMENT.keys()
    for name, variable in ENVIRONMENT.items():
        monkeypatch.setenv(variable, str(values[name]))
    app = GatewayApp()
    app.initialize([])
    assert {name: getattr(app, name) for name in values} == values
    app.initialize(["--port", "9001"])
    assert app.port == 9001
