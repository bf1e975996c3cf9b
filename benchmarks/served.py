"""A manager in a separate process, controlled by a benchmark with one JSON object per line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bai_services.core.resources import ResourceSlots
from bai_services.db.tables import accounts, cluster, sessions
from bai_services.manager.scheduling.idle_scheduling import new_loop
from bai_services.manager.scheduling.jit_warmup import warm_up
from tests.testbed.manager import MovableClock, World, make_world, manager_on, serving

GIB = 2**30
_INSERT_BATCH = 2_000


class Served:
    """Starts the manager's process, and sends it commands.

    ``url`` is the URL of the API. ``keys`` maps each demo user to an access key and a secret key.
    """

    def __init__(self, home: Path, database_url: str) -> None:
        self._command = [sys.executable, "-m", "benchmarks.served", str(home), database_url]

    def __enter__(self) -> Served:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        ready = self._read()
        self.url: str = ready["url"]
        self.keys: dict[str, tuple[str, str]] = {n: tuple(k) for n, k in ready["keys"].items()}
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def ask(self, what: str, **facts: Any) -> dict[str, Any]:
        """Send the command ``what`` with its arguments and return its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, **facts}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the benchmark's manager has exited")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Commands:
    """The commands that the manager's process executes, one method each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._database = world.manager.database
        self._sequence = 0

    async def fill(self, sessions: int) -> dict[str, Any]:
        """Insert ``sessions`` ended sessions of two users."""
        await self._write_sessions(sessions, "TERMINATED")
        return {}

    async def queue(self, pending: int, agents: int) -> dict[str, Any]:
        """Insert pending sessions, and agents with 64 cores and 256 GiB of memory each.

        ``pending`` is the number of sessions, ``agents`` the number of agents. The limit of
        concurrent sessions per keypair is removed.
        """
        if agents:
            await self._write_agents([f"bench-{number}" for number in range(agents)])
        async with self._database.write() as tx:
            await tx.execute(
                sa.update(accounts.keypair_policies).values(max_concurrent_sessions=None)
            )
        await self._write_sessions(pending, "PENDING")
        return {}

    async def _write_agents(self, machines: list[str]) -> None:
        now = self._world.clock()
        async with self._database.write() as tx:
            await tx.execute(
                sa.insert(cluster.agents),
                [
                    {
                        "id": machine,
                        "created_at": now,
                        "resource_group": "default",
                        "status": "ALIVE",
                        "status_changed_at": now,
                        "last_heartbeat_at": now,
                        "engine": "process",
                        "architecture": "x86_64",
                        "version": "1",
                        "facts": {},
                    }
                    for machine in machines
                ],
            )
            await tx.execute(
                sa.insert(cluster.agent_slots),
                [
                    {"agent_id": machine, "slot": slot, "capacity": capacity, "used": 0}
                    for machine in machines
                    for slot, capacity in (("cpu", 64_000), ("mem", 256 * GIB))
                ],
            )

    async def warm(self) -> dict[str, Any]:
        """JIT-compile the scheduler's code before the measurement."""
        await warm_up()
        return {}

    async def pass_(self) -> dict[str, Any]:
        """Run one pass; return its seconds, its CPU seconds, and the number of placed sessions."""
        began, cpu_began = time.perf_counter(), time.process_time()
        await self._world.manager.scheduling.scheduler.run_pass()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        async with self._database.read() as tx:
            placed = await tx.scalar(
                sa.select(sa.func.count())
                .select_from(sessions.sessions)
                .where(sessions.sessions.c.status == "SCHEDULED")
            )
        return {
            "seconds": round(seconds, 3),
            "cpu_seconds": round(cpu_seconds, 3),
            "placed": placed,
        }

    async def cpu(self) -> dict[str, Any]:
        """Return the CPU seconds that this process has used."""
        return {"seconds": time.process_time()}

    async def _write_sessions(self, count: int, status: str) -> None:
        callers = [await self._world.caller(name) for name in ("user", "user2")]
        keys = [self._world.keys[caller.username].access_key for caller in callers]
        project = await self._world.project_id()
        began = self._world.clock() - timedelta(days=90)
        is_live = status == "PENDING"
        for first in range(0, count, _INSERT_BATCH):
            rows = []
            for number in range(first, min(first + _INSERT_BATCH, count)):
                who = number % len(callers)
                at = began + timedelta(seconds=number)
                self._sequence += 1
                name = f"{status.lower()}-{self._sequence}"
                rows.append(
                    {
                        "id": str(uuid.uuid4()),
                        "created_at": at,
                        "sequence": self._sequence,
                        "name": name,
                        "live_name": name if is_live else None,
                        "type": "interactive",
                        "owner_id": callers[who].user_id,
                        "access_key": keys[who],
                        "domain": "default",
                        "project_id": project,
                        "resource_group": "default",
                        "image": "local/session:latest",
                        "architecture": "x86_64",
                        "priority": 10,
                        "requested_slots": ResourceSlots.parse({"cpu": "1", "mem": "1g"}),
                        "shared_memory_bytes": 2**26,
                        "mounts": [],
                        "environ": {},
                        "options": {},
                        "request_hash": name,
                        "status": status,
                        "status_info": "",
                        "reasons": [],
                        "notices": [],
                        "result": "undefined" if is_live else "success",
                        "hub_user": callers[who].username,
                        "hub_server": name,
                        "started_by": "manager",
                        "status_changed_at": at,
                        "started_at": None if is_live else at,
                        "terminated_at": None if is_live else at + timedelta(hours=1),
                    }
                )
            await self._insert(rows)
        if not self._database.is_sqlite:
            async with self._database.write() as tx:
                # Without statistics of the tables, PostgreSQL chooses slow query plans. Autovacuum
                # would collect the statistics, but only after a minute.
                await tx.execute(sa.text("ANALYZE"))

    async def _insert(self, rows: list[dict[str, Any]]) -> None:
        kernels = [
            {
                "id": str(uuid.uuid4()),
                "created_at": row["created_at"],
                "session_id": row["id"],
                "role": "main",
                "index": 0,
                "hostname": "main1",
                "progress": {},
            }
            for row in rows
        ]
        async with self._database.write() as tx:
            await tx.execute(sa.insert(sessions.sessions), rows)
            await tx.execute(sa.insert(sessions.kernels), kernels)
            await tx.execute(
                sa.delete(sessions.counters).where(sessions.counters.c.name == "sessions")
            )
            await tx.execute(
                sa.insert(sessions.counters).values(name="sessions", value=self._sequence)
            )


async def _serve(home: Path, database_url: str) -> None:
    async with manager_on(database_url, home, MovableClock()) as manager:
        world = await make_world(manager, manager.clock)  # type: ignore[arg-type]
        await manager.folders.vfolders.start()
        commands = Commands(world)
        async with serving(world) as api:
            keys = {name: (k.access_key, k.secret_key) for name, k in world.keys.items()}
            print(json.dumps({"url": api.url, "keys": keys}), flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                facts = json.loads(line)
                what = facts.pop("what")
                command = commands.pass_ if what == "pass" else getattr(commands, what)
                print(json.dumps(await command(**facts)), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:  # the event loop of the manager
        runner.run(_serve(Path(sys.argv[1]), sys.argv[2]))
