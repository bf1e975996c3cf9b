"""Response times of the API: idle, during a large scheduling pass, and for large lists.

The manager runs in a separate process; the clients in this process sign requests with keypairs.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bai_services.client import Client, Keypair
from bai_services.core.errors import BaiError

from .served import Served

EXIT_MISSING = 6
PAGE = 50


class Call(NamedTuple):
    """A request, with the name under which its times are reported."""

    name: str
    send: Callable[[Client], Awaitable[Any]]


class CallTime(NamedTuple):
    """A request's name, and the time in milliseconds until its response arrived."""

    name: str
    ms: float


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    spec = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as home, _database(spec.database) as url:
        if url is None:
            print("PostgreSQL is missing: nothing was measured", file=sys.stderr)
            return EXIT_MISSING
        with Served(Path(home), url or f"sqlite+aiosqlite:///{home}/bai.sqlite") as served:
            served.ask("fill", sessions=spec.sessions)
            print(json.dumps(asyncio.run(_measure(served, spec)), indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api", description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--sessions", type=int, default=100_000, help="ended sessions to list")
    parser.add_argument(
        "--pending", type=int, default=10_000, help="pending sessions before the measured pass"
    )
    parser.add_argument("--agents", type=int, default=250, help="machines with 64 cores each")
    parser.add_argument("--requests", type=int, default=2_000, help="requests per measurement")
    parser.add_argument("--callers", type=int, default=4, help="number of concurrent clients")
    return parser


@contextmanager
def _database(kind: str) -> Iterator[str | None]:
    """Yield the URL of an empty PostgreSQL database, or None if there is no PostgreSQL server.

    For SQLite, yield "": the caller creates the file in its home folder.
    """
    if kind == "sqlite":
        yield ""
        return
    from tests.testbed import ComponentMissing, postgres

    server = postgres.running()
    try:
        started = server.__enter__()
    except ComponentMissing:
        yield None
        return
    try:
        with started.database() as url:
            yield url
    finally:
        server.__exit__(None, None, None)


async def _measure(served: Served, spec: argparse.Namespace) -> dict[str, Any]:
    clients = [
        Client(served.url, Keypair(*served.keys[name]), timeout_seconds=120)
        for name in ["admin", "user", "domain-admin", "user2"][: spec.callers]
    ]
    clients += [
        Client(served.url, Keypair(*served.keys["admin"]), timeout_seconds=120)
        for _ in range(spec.callers - len(clients))
    ]
    try:
        for client in clients:
            await client.post("/vfolders", {"name": "bench"})
        await _time_calls(clients, MIX, 100)  # fill the caches before measuring
        began = served.ask("cpu")["seconds"]
        alone = await _time_calls(clients, MIX, spec.requests)
        cpu_seconds = served.ask("cpu")["seconds"] - began
        lists = await _time_calls(clients[:1], LISTS, spec.requests // 4)
        await asyncio.to_thread(served.ask, "queue", pending=spec.pending, agents=spec.agents)
        await asyncio.to_thread(served.ask, "warm")
        during, facts = await _during_pass(served, clients)
    finally:
        for client in clients:
            await client.close()
    return {
        "p50_ms": _percentile(alone, 50),
        "p99_ms": _percentile(alone, 99),
        "p50_ms_during_pass": _percentile(during, 50),
        "p99_ms_during_pass": _percentile(during, 99),
        "max_ms_during_pass": round(max(one.ms for one in during), 2),
        "list_p50_ms": _percentile(lists, 50),
        "list_p99_ms": _percentile(lists, 99),
        "pass_seconds": facts["seconds"],
        "pass_cpu_seconds": facts["cpu_seconds"],
        "placed": facts["placed"],
        "cpu_ms_per_request": round(cpu_seconds * 1000 / len(alone), 2),
        "requests": len(alone),
        "requests_during_pass": len(during),
        "listed_sessions": spec.sessions,
        "callers": spec.callers,
        "database": spec.database,
        "routes": _by_name(alone),
        "routes_during_pass": _by_name(during),
        "lists": _by_name(lists),
    }


def _by_name(taken: Sequence[CallTime]) -> dict[str, dict[str, float]]:
    """Return the median and the 99th percentile, in milliseconds, for each request name."""
    of_name: dict[str, list[CallTime]] = {}
    for one in taken:
        of_name.setdefault(one.name, []).append(one)
    return {
        name: {"p50_ms": _percentile(mine, 50), "p99_ms": _percentile(mine, 99)}
        for name, mine in sorted(of_name.items())
    }


async def _during_pass(
    served: Served, clients: Sequence[Client]
) -> tuple[list[CallTime], dict[str, Any]]:
    """Run a scheduling pass and send requests until it is complete.

    Return the durations of the requests, and the result of the command `pass`.
    """
    running = asyncio.create_task(asyncio.to_thread(served.ask, "pass"))
    taken: list[CallTime] = []
    turns = 0

    async def ask(client: Client) -> None:
        nonlocal turns
        while not running.done():
            call = MIX[turns % len(MIX)]
            turns += 1
            taken.append(await _time(client, call))

    await asyncio.gather(*(ask(client) for client in clients))
    return taken, await running


async def _time_calls(
    clients: Sequence[Client], calls: Sequence[Call], count: int
) -> list[CallTime]:
    taken: list[CallTime] = []
    numbers = iter(range(count))

    async def ask(client: Client) -> None:
        for number in numbers:
            taken.append(await _time(client, calls[number % len(calls)]))

    await asyncio.gather(*(ask(client) for client in clients))
    return taken


async def _time(client: Client, call: Call) -> CallTime:
    """Send a request and return its duration; raise ``BaiError`` if the response is an error."""
    began = time.perf_counter()
    await call.send(client)
    return CallTime(call.name, (time.perf_counter() - began) * 1000)


def _get(path: str, **query: Any) -> Call:
    shown = "&".join(f"{name}={value}" for name, value in query.items())
    name = f"{path}?{shown}" if shown else path
    return Call(name, lambda client: client.get(path, **query))


# A change to the present permission would write nothing, so the permissions alternate.
_PERMISSIONS = itertools.cycle(("ro", "rw"))


def _write(client: Client) -> Awaitable[Any]:
    return client.patch("/vfolders/bench", {"permission": next(_PERMISSIONS)})


# Typical requests of pages and scripts; one in eight is a write.
MIX: Sequence[Call] = (
    _get("/me"),
    _get("/sessions", limit=20, status="RUNNING"),
    _get("/vfolders"),
    _get("/images"),
    Call("PATCH /vfolders/bench", _write),
    _get("/projects"),
    _get("/presets"),
    _get("/sessions/options"),
)

LISTS: Sequence[Call] = (
    _get("/sessions", limit=PAGE, sort="-created_at"),
    _get("/sessions", limit=PAGE, sort="name", status="TERMINATED"),
    _get("/sessions", limit=PAGE, sort="-started_at", owner="user", project="default"),
    _get("/sessions", limit=PAGE, sort="name", name__contains="99", offset=100),
)


def _percentile(taken: Sequence[CallTime], percent: int) -> float:
    """Return the percentile of the durations, in milliseconds."""
    ranked = sorted(one.ms for one in taken)
    return round(ranked[min(len(ranked) - 1, len(ranked) * percent // 100)], 2)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BaiError as error:
        sys.exit(f"{error.code}: {error.message}")
