"""A small cluster in a real database: users, caps, agents with devices, and new sessions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bai_services.core.resources import Caps, ResourceSlots
from bai_services.core.scheduling.caps import Scope
from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.placement import Mode
from bai_services.core.scheduling.queue import Queue
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.db.database import Database
from bai_services.db.scheduling.allocations import AllocationStore
from bai_services.db.scheduling.caps import read_usage
from bai_services.db.scheduling.queue import QueueStore, WaitState
from bai_services.db.schema import upgrade
from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.session_insert import NewSession
from bai_services.db.sessions.store import SessionStore
from bai_services.db.tables import accounts, cluster

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
GIB = 2**30

DEFAULT_SLOTS = {"cpu": "1", "mem": "1g", "cuda.shares": "0.25"}


class World:
    """The stores of one database, and defaults for new sessions.

    ``make_world`` creates domain ``d``, project ``p`` (id ``p1``), users ``ann`` (id ``u1``,
    keypair ``AK1``) and ``bob``, and resource group ``main`` with agent ``a1`` (8 cores, 16 GiB,
    two devices).
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.database = Database(url)
        self.sessions = SessionStore(self.database)
        self.queue = QueueStore(self.database)
        self.kernels = KernelStore(self.database)
        self.allocations = AllocationStore(self.database)
        self.now = NOW

    def advance(self, seconds: float = 1) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    async def close(self) -> None:
        await self.database.close()

    async def write(self, *statements: Any) -> None:
        async with self.database.write() as tx:
            for statement in statements:
                await tx.execute(statement)

    async def set_caps(self, scope: str, slots: Mapping[str, str], **counts: int | None) -> None:
        """Set caps in all rows of one table.

        ``scope`` is ``domain``, ``project``, ``user`` (user policies) or ``keypair`` (keypair
        policies).
        """
        table = {
            "domain": accounts.domains,
            "project": accounts.projects,
            "user": accounts.user_policies,
            "keypair": accounts.keypair_policies,
        }[scope]
        values = {"total_resource_slots": Caps.parse(slots), **counts}
        await self.write(sa.update(table).values(values))

    async def add_user(self, number: int, name: str) -> None:
        user_id, access_key = f"u{number}", f"AK{number}"
        await self.write(
            sa.insert(accounts.users).values(
                id=user_id,
                created_at=NOW,
                username=name,
                email=f"{name}@example.org",
                domain="d",
                resource_policy="default",
                main_access_key=access_key,
            ),
            sa.insert(accounts.memberships).values(user_id=user_id, project_id="p1"),
            sa.insert(accounts.keypairs).values(
                access_key=access_key,
                created_at=NOW,
                secret_key_encrypted="-",
                user_id=user_id,
                resource_policy="default",
            ),
        )

    async def add_agent(
        self, agent_id: str, cpu: int = 8, mem: int = 16, gpus: int = 2, group: str = "main"
    ) -> None:
        await self.write(
            sa.insert(cluster.agents).values(
                id=agent_id,
                created_at=NOW,
                resource_group=group,
                status="ALIVE",
                status_changed_at=NOW,
                last_heartbeat_at=NOW,
                engine="process",
                architecture="x86_64",
                version="1",
                facts={},
            ),
            sa.insert(cluster.agent_slots).values(
                [
                    {"agent_id": agent_id, "slot": "cpu", "capacity": cpu * 1000, "used": 0},
                    {"agent_id": agent_id, "slot": "mem", "capacity": mem * GIB, "used": 0},
                ]
            ),
            *(
                sa.insert(cluster.devices).values(
                    id=f"{agent_id}-g{i}",
                    agent_id=agent_id,
                    family="cuda",
                    index=i,
                    model="Simulated",
                    memory_bytes=16 * GIB,
                    is_simulated=True,
                    facts={},
                )
                for i in range(gpus)
            ),
        )

    def new_session(
        self, name: str, slots: Mapping[str, str] | None = None, **facts: Any
    ) -> NewSession:
        """Return a session to insert; ``facts`` replace the default values of its fields.

        ``user`` in ``facts`` is the number of the owner: 1 for ann, 2 for bob.
        """
        number = facts.pop("user", 1)
        values: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "kernel_id": str(uuid.uuid4()),
            "name": name,
            "type": SessionType.INTERACTIVE,
            "owner_id": f"u{number}",
            "access_key": f"AK{number}",
            "domain": "d",
            "project_id": "p1",
            "resource_group": "main",
            "image": "python",
            "architecture": "x86_64",
            "priority": 10,
            "requested_slots": ResourceSlots.parse(slots or DEFAULT_SLOTS),
            "shared_memory_bytes": 2**26,
            "mounts": [],
            "environ": {},
            "options": {},
            "request_hash": "hash",
            "notices": [],
            "hub_user": f"user{number}",
            "hub_server": name,
            "started_by": "manager",
            "startup_command": None,
            "starts_at": None,
            "batch_timeout_seconds": None,
            "callback_url": None,
            "job_priority": 0,
            "is_preemptible": True,
            "cluster_mode": Mode.SINGLE_NODE,
        }
        return NewSession(**{**values, **facts})

    async def run_pass(self) -> list[str]:
        """Run a scheduling pass, write its results, and return the ids of the placed sessions."""
        queue = Queue(await self.queue.snapshot(self.now))
        result = queue.run(self.now)
        committed = await self.queue.commit(result.decisions, self.now, token=None)
        states = {
            session_id: WaitState(result.reasons[session_id], position)
            for group in queue.groups()
            for session_id, position in Explainer(queue).positions(group).items()
        }
        await self.queue.write_states(states, token=None)
        return list(committed.placed)

    async def usage(self, scope: Scope) -> dict[str, int]:
        async with self.database.read() as tx:
            return (await read_usage(tx, [scope]))[scope]


async def make_world(url: str) -> World:
    upgrade(url)
    world = World(url)
    unlimited = {"default_for_unspecified": "UNLIMITED", "total_resource_slots": Caps({})}
    hosts: dict[str, Any] = {"allowed_vfolder_hosts": {}}
    await world.write(
        sa.insert(accounts.keypair_policies).values(
            name="default", created_at=NOW, **unlimited, **hosts
        ),
        sa.insert(accounts.user_policies).values(
            name="default", created_at=NOW, total_resource_slots=Caps({})
        ),
        sa.insert(accounts.project_policies).values(name="default", created_at=NOW),
        sa.insert(accounts.domains).values(
            name="d", created_at=NOW, total_resource_slots=Caps({}), **hosts
        ),
        sa.insert(accounts.projects).values(
            id="p1",
            created_at=NOW,
            domain="d",
            name="p",
            total_resource_slots=Caps({}),
            resource_policy="default",
            **hosts,
        ),
        sa.insert(cluster.resource_groups).values(
            name="main",
            created_at=NOW,
            is_default=True,
            scheduler_opts={},
            allowed_session_types=["interactive"],
        ),
    )
    await world.add_user(1, "ann")
    await world.add_user(2, "bob")
    await world.add_agent("a1")
    return world
