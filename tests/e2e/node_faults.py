"""Break parts of a cluster at random while sessions start and stop on its nodes.

``BAI_NODE_CYCLES`` is the number of sessions that are started and stopped (default 25; `make soak`
runs 1,000). ``BAI_FAULT_SEED`` is the seed of all random choices. Each run prints its seed.
"""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from tests.e2e.cluster import GROUP, Cluster
from tests.e2e.test_faults import (
    SEED,
    STOP_STATUSES,
    TIMEOUT_SECONDS,
    RetryingClient,
    Steps,
    kill,
)
from tests.testbed.nodes import Node
from tests.testbed.wait import wait_until

CYCLES = int(os.environ.get("BAI_NODE_CYCLES", "25"))
CYCLES_PER_FAULT = 20
MIN_FAULTS = 2
STEPS_PER_CYCLE = 3
WORKERS = 6
# A fault with a duration ends after FAULT_STEPS steps, or after FAULT_SECONDS if it blocks all
# workers. FAULT_SECONDS is less than the time after which a batch session starts on another node.
FAULT_STEPS = 9
FAULT_SECONDS = 15

Fault = Literal["engine killed", "engine suspended", "agent", "link", "manager", "hub", "proxy"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


@dataclass(frozen=True)
class Report:
    """Number of sessions by final status, of faults by kind, and of sessions by their node."""

    ends: Counter[str]
    faults: Counter[Fault]
    nodes: Counter[str]


class FaultySoak:
    """Starts and stops sessions of several users while the parts of the cluster fail in turn."""

    def __init__(self, cluster: Cluster, users: tuple[str, ...], cycles: int = CYCLES) -> None:
        self._cluster = cluster
        self._cycles = cycles
        self._chance = random.Random(SEED)
        self._clients = [RetryingClient(cluster.hub, name) for name in users]
        self._nodes: Counter[str] = Counter()
        count = max(MIN_FAULTS, cycles // CYCLES_PER_FAULT)
        last = STEPS_PER_CYCLE * cycles * 9 // 10
        self._steps = Steps([self._chance.randrange(last) for _ in range(count)])
        # All kinds occur equally often, in a random order.
        rounds = [self._chance.sample(FAULTS, len(FAULTS)) for _ in range(count // len(FAULTS) + 1)]
        self._faults = [fault for each in rounds for fault in each][:count]

    def run(self) -> Report:
        """Run all cycles, and return when the last fault has been repaired."""
        seeds = [self._chance.random() for _ in range(self._cycles)]
        with ThreadPoolExecutor(WORKERS + 1) as pool:
            faults = pool.submit(self._cause_faults)
            try:
                ends = Counter(pool.map(self._cycle, range(self._cycles), seeds))
            finally:
                self._steps.end()
            faults.result()
        return Report(ends, Counter(self._faults), self._nodes)

    def _cycle(self, number: int, seed: float) -> str:
        try:
            client = self._clients[number % len(self._clients)]
            return self._start_and_stop(client, number, random.Random(seed))
        except BaseException:
            self._abort()
            raise

    def _start_and_stop(self, client: RetryingClient, number: int, chance: random.Random) -> str:
        """Start a session, stop it in a random status, and return its final status."""
        fields: dict[str, object] = {"resources": {"cpu": "1", "mem": "512m"}}
        if chance.random() < 0.2:
            fields |= {"type": "batch", "startup_command": "sleep 600"}
        elif chance.random() < 0.15:
            # The session has two kernels, which do not fit on one node, and an overlay network.
            fields |= {"cluster_size": 2, "cluster_mode": "multi-node"}
            fields["resources"] = {"cpu": "1", "mem": "5g"}
        body = {"name": f"soak-{number:04}-{secrets.token_hex(4)}", "project": "default", **fields}
        body |= {"resource_group": GROUP, "image": self._cluster.image}
        made = client.call("POST", "/sessions", json=body)
        assert made.status_code in (200, 201), made.text
        key = made.json()["id"]
        self._steps.step()
        status = chance.choice(STOP_STATUSES)
        if status is not None:
            session = client.session(key, wait=status, timeout="60")
            self._nodes.update({str(k["agent"]) for k in session["kernels"] if k["agent"]})
        self._steps.step()
        forced = {"force": "true"} if chance.random() < 0.3 else {}
        answer = client.call("DELETE", f"/sessions/{key}", params=forced)
        assert answer.status_code in (202, 404, 409), answer.text
        self._steps.step()
        return str(client.end_of(key)["status"])

    def _abort(self) -> None:
        for client in self._clients:
            client.is_aborted.set()

    def _cause_faults(self) -> None:
        for point, fault in zip(self._steps.kill_points(), self._faults, strict=True):
            if self._clients[0].is_aborted.is_set():
                return
            node = self._chance.choice(self._cluster.nodes)
            print(f"fault after step {point}: {fault}, {node.agent_id}", flush=True)
            try:
                self._cause(fault, node)
                assert not self._duplicates()
            except BaseException:
                self._abort()
                raise

    def _cause(self, fault: Fault, node: Node) -> None:
        """Cause a fault, and wait until the cluster has recovered."""
        if fault in ("manager", "hub", "proxy"):
            kill(self._cluster.hub, fault)
        elif fault == "agent":
            node.agent.kill()
            node.agent.wait(20)
            node.start_agent()
        elif fault == "engine killed":
            node.crash_engine()
        elif fault == "engine suspended":
            with node.suspended_engine():
                self._steps.advance(FAULT_STEPS, FAULT_SECONDS)
        else:
            with _cut(node):
                self._steps.advance(FAULT_STEPS, FAULT_SECONDS)
        wait_until(self._are_agents_alive, TIMEOUT_SECONDS, f"the agents after a fault: {fault}")

    def _are_agents_alive(self) -> bool:
        """Return whether all agents are ALIVE; False while the manager restarts."""
        admin = RetryingClient(self._cluster.hub, "admin")
        query = {"resource_group": GROUP, "status": "ALIVE"}
        answer = admin.call("GET", "/agents", params=query)
        return bool(answer.json()["total"] == len(self._cluster.nodes))

    def _duplicates(self) -> list[str]:
        """Return the names of kernels that run on more than one node."""
        listed = Counter(
            name
            for node in self._cluster.nodes
            for name in node.engine.run("ps", "--format", "{{.Names}}").split()
        )
        return [name for name, count in listed.items() if count > 1]


@contextmanager
def _cut(node: Node) -> Iterator[None]:
    node.cut()
    try:
        yield
    finally:
        node.reconnect()
