"""HAProxy in front of the gateway: updates its routes and tokens, and reads its counters."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress

from bai_services.core.errors import Unavailable

from ..routes import Endpoint, Load
from ..server import GatewayServer
from .configuration import MAPS, NAMED_PROXY, Settings, gateway_socket, grpc_name, map_file
from .counters import Counters
from .process import HaproxyProcess
from .slots import Pool, Slot, Slots
from .wanted import Server, Wanted, changes_of_map, changes_of_server, owners

log = logging.getLogger("bai_services.gateway")

POLL_SECONDS = 0.5
# Poll interval while a replica is draining or requests wait.
BUSY_POLL_SECONDS = 0.1


class Haproxy:
    """Serves the endpoints of a gateway through HAProxy."""

    def __init__(self, server: GatewayServer, settings: Settings, host: str, port: int) -> None:
        self._server = server
        self._process = HaproxyProcess(settings, host, port)
        self._runtime = self._process.runtime
        self._slots = Slots.create(settings.pools, settings.slots)
        self._counters = Counters()
        self._wake = asyncio.Event()
        # Number of the process whose state is in `_maps` and `_servers`; 0: send the whole state.
        self._starts = 0
        self._counted_starts = 0
        self._maps: dict[str, dict[str, str]] = {}
        self._servers: dict[tuple[str, str], Server] = {}
        self._owners: set[str] = set()
        self._changes = 1
        self._applied = 0

    @property
    def port(self) -> int:
        return self._process.port

    @property
    def starts(self) -> int:
        """Return how often HAProxy was started."""
        return self._process.starts

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    @property
    def is_current(self) -> bool:
        """Return whether HAProxy has received every change."""
        return self._applied == self._changes and self._starts == self._process.starts

    async def start(self) -> None:
        await self._server.start_behind(gateway_socket(self._process.folder), self.port)
        await self._process.start()

    async def stop(self, grace_seconds: float) -> None:
        with suppress(Unavailable):
            await self._poll()
        await self._process.stop(grace_seconds)

    def wake(self) -> None:
        """Send changed routes or replicas to HAProxy soon."""
        self._changes += 1
        self._wake.set()

    async def supervise(self) -> None:
        await self._process.run()

    async def run(self) -> None:
        while True:
            try:
                await self._sync()
                await self._poll()
            except Unavailable as error:
                log.warning("%s", error)
                self._starts = 0
            pause = BUSY_POLL_SECONDS if self._is_busy() else POLL_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()

    def _is_busy(self) -> bool:
        return self._starts == 0 or any(
            slot.replica is not None and not slot.is_ready
            for pool in self._slots.pools
            for slot in pool.slots
        )

    # Routes

    async def _sync(self) -> None:
        if self._starts != self._process.starts:
            await self._begin()
        changes, now = self._changes, time.time()
        endpoints = self._endpoints()
        wanted = self._slots.wanted(endpoints, now)
        wanted.maps["trusted"] = self._trusted()
        await self._runtime.change(self._commands(wanted))
        self._maps, self._servers = wanted.maps, wanted.servers
        permitted = owners((endpoint.route for endpoint in endpoints), now)
        if ended := self._owners - permitted:
            await self._end_requests(ended)
        self._owners = permitted
        self._applied = changes

    async def _begin(self) -> None:
        """Reset the known state after a start of the process or a failed command."""
        starts = self._process.starts
        self._applied = 0
        await self._runtime.change(
            f"clear map {map_file(self._process.folder, name)}" for name in MAPS
        )
        self._maps = {name: {} for name in MAPS}
        self._servers = {}
        if starts != self._counted_starts:
            self._counters.restart()
            self._counted_starts = starts
        self._starts = starts

    def _commands(self, wanted: Wanted) -> Iterator[str]:
        """Yield all changes.

        A server becomes ready before the maps name its pool, and stops after its pool was removed
        from them.
        """
        late = []
        for (pool, name), server in wanted.servers.items():
            before = self._servers.get((pool, name))
            commands = changes_of_server(f"{pool}/{name}", before, server)
            if server.state == "ready":
                yield from commands
            else:
                late.append(commands)
        for name, entries in wanted.maps.items():
            yield from changes_of_map(
                str(map_file(self._process.folder, name)), self._maps[name], entries
            )
        for commands in late:
            yield from commands

    def _endpoints(self) -> list[Endpoint]:
        return list(self._server.routes.by_name.values())

    def _trusted(self) -> dict[str, str]:
        proxies = self._server.proxies
        own = {network: "own" for network in proxies.own_networks()}
        return {**own, **{str(network): NAMED_PROXY for network in proxies.networks}}

    async def _end_requests(self, ended: set[str]) -> None:
        """End the running requests of tokens and endpoints that no longer permit them."""
        streams = await self._runtime.table("streams", "data.conn_cur gt 0")
        clients = {
            client for owner, client in (key.split("@", 1) for key, _ in streams) if owner in ended
        }
        if not clients:
            return
        sessions = [name for name, client in await self._runtime.sessions() if client in clients]
        # Ignore the responses, because a session may already have ended.
        for name in sessions:
            await self._runtime.ask(f"shutdown session {name}")

    # Counters

    async def _poll(self) -> None:
        rows = await self._runtime.statistics()
        by_name = {(row["pxname"], row["svname"]): row for row in rows}
        is_used = False
        loads: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for pool in self._slots.pools:
            for name in (pool.name, grpc_name(pool.name)):
                row = by_name[name, "BACKEND"]
                servers = {slot.name: by_name.get((name, slot.name), {}) for slot in pool.slots}
                counted = self._counters.of_backend(name, row, servers)
                if pool.key is None:
                    continue
                endpoint, revision, _ = pool.key
                queued = int(row["qcur"] or 0)
                loads[endpoint][0] += int(row["scur"] or 0) - queued
                loads[endpoint][1] += queued
                if counted.requests:
                    is_used = True
                    self._server.measures.requests(
                        endpoint, revision, counted.requests, counted.errors, counted.seconds,
                        failed=counted.failed,
                    )  # fmt: skip
            waiting = sum(
                int(by_name[name, "BACKEND"]["qcur"] or 0)
                for name in (pool.name, grpc_name(pool.name))
            )
            for slot in pool.slots:
                self._read_slot(pool, slot, by_name, waiting)
        for served in self._server.routes.by_name.values():
            running, queued = loads[served.route.id]
            served.elsewhere = Load(running, queued)
        if is_used:
            for token, count in self._counters.of_tokens(await self._runtime.table("requests")):
                self._server.measures.token(token, (0, 0), count)

    def _read_slot(
        self,
        pool: Pool,
        slot: Slot,
        rows: Mapping[tuple[str, str], Mapping[str, str]],
        waiting: int,
    ) -> None:
        replica = slot.replica
        if replica is None:
            return
        # In a pool without a ready server, waiting requests may go to any server.
        running = 0 if pool.has_ready_slot else waiting
        for name in (pool.name, grpc_name(pool.name)):
            row = rows.get((name, slot.name), {})
            running += int(row.get("scur") or 0)
            if name != pool.backend:
                continue
            if self._counters.failed_connections(name, slot.name, row) and slot.is_ready:
                # The next health check makes the replica ready again, as after a failed connection
                # of the gateway itself.
                replica.is_ready = False
                self.wake()
        if slot.is_ready:
            slot.count(max(1, running))
            return
        was_running, slot.running = slot.running, running
        slot.count(running)
        if running == 0 and was_running != 0:
            self._server.drained()
