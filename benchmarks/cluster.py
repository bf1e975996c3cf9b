"""Several machines: `python -m benchmarks.cluster` prints a JSON object.

The installation has a Hub and two further machines: engines of a Docker Swarm in network
namespaces. ``remote_added_seconds``: the start of a session on another machine minus the start on
the Hub's machine (medians of alternating starts). ``join_seconds``: `bai-agent join` and the
registration of the agent. ``doctor_seconds``: the checks of all nodes. ``lost_batch_seconds``: from
the loss of power of a machine until its batch session runs on another machine, with the shortest
``requeue_after`` of the resource group. ``agents_500_core_percent``: load of one core in the
manager for the heartbeats of 500 agents with 8 devices each, with SQLite.

``--simulate`` measures the loops of the manager with 5,000 agents and 50,000 sessions instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bai_services.client import Client, Token
from tests.e2e.cluster import GROUP, Cluster, running
from tests.e2e.sessions import checked, stop
from tests.testbed import ComponentMissing, docker_engine
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import AGENT_TOKEN

from . import simulation
from .heartbeats import devices_of
from .served import Served

_FIRST_BATCH = 50
_CLIENTS = 10
_WARM_UP_ROUNDS = 1
# More than a minute: once a minute, the manager compares all devices with the database.
_MEASURED_ROUNDS = 7


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    arguments = _parser().parse_args()
    if arguments.simulate:
        sizes = (arguments.simulated_agents, arguments.running, arguments.pending)
        print(json.dumps(simulation.run(*sizes, arguments.database), indent=2))
        return 0
    figures = asyncio.run(_heartbeat_load(arguments.agents))
    if not arguments.no_nodes:
        try:
            engine = docker_engine.acquire()
        except ComponentMissing as reason:
            print(f"Docker is missing: {reason}", file=sys.stderr)
            return 1
        try:
            with (
                tempfile.TemporaryDirectory() as folder,
                running(engine, Path(folder)) as cluster,
            ):
                figures |= _cluster_figures(cluster, arguments.rounds)
        finally:
            engine.release()
    print(json.dumps(figures, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__.partition("\n\n")[2],
    )
    parser.add_argument("--agents", type=int, default=500, help="number of agents; default: 500")
    parser.add_argument("--rounds", type=int, default=5, help="starts on each machine; default: 5")
    parser.add_argument("--no-nodes", action="store_true", help="only the heartbeats")
    parser.add_argument(
        "--simulate", action="store_true", help="only simulate a large cluster, without machines"
    )
    parser.add_argument("--simulated-agents", type=int, default=5_000, help="default: 5,000")
    parser.add_argument("--running", type=int, default=45_000, help="sessions; default: 45,000")
    parser.add_argument("--pending", type=int, default=5_000, help="sessions; default: 5,000")
    parser.add_argument("--database", default="", help="URL of an empty database for --simulate")
    return parser


async def _heartbeat_load(count: int) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Served(Path(folder), f"sqlite+aiosqlite:///{folder}/bai.sqlite") as served,
    ):
        # A client has at most 100 connections.
        clients = [Client(served.url, Token(AGENT_TOKEN)) for _ in range(_CLIENTS)]
        agents = [
            FakeAgent(clients[n % _CLIENTS], f"a{n}", devices=devices_of(n)) for n in range(count)
        ]
        # The first heartbeats create the agents; they are answered in batches.
        for first in range(0, count, _FIRST_BATCH):
            await asyncio.gather(*(agent.beat() for agent in agents[first : first + _FIRST_BATCH]))
        # The interval depends on the number of agents.
        interval = await _interval(agents[0])
        seconds = used = 0.0
        for number in range(_WARM_UP_ROUNDS + _MEASURED_ROUNDS):
            before = served.ask("cpu")["seconds"]
            begun = time.monotonic()
            for agent in agents:
                _use_devices(agent, number)
            await asyncio.gather(
                *(_beat_at(agent, begun + interval * n / count) for n, agent in enumerate(agents))
            )
            await asyncio.sleep(max(0.0, begun + interval - time.monotonic()))
            if number >= _WARM_UP_ROUNDS:
                used += served.ask("cpu")["seconds"] - before
                seconds += time.monotonic() - begun
        for client in clients:
            await client.close()
    return {
        f"agents_{count}_core_percent": round(100 * used / seconds, 1),
        "heartbeat_interval_seconds": interval,
    }


def _use_devices(agent: FakeAgent, number: int) -> None:
    """Change the facts of all devices, as those of devices in use change."""
    for device in agent.heartbeat["devices"]:
        device["facts"] = {**device["facts"], "utilization": 40 + number}


async def _interval(agent: FakeAgent) -> float:
    """Return the interval of heartbeats that the manager requests."""
    answer = await agent.client.post(
        f"/agents/{agent.id}/heartbeat", {**agent.heartbeat, "kernels": []}
    )
    return float(answer["interval_seconds"])


async def _beat_at(agent: FakeAgent, moment: float) -> None:
    # The heartbeats of real agents are spread over the interval.
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
    await agent.beat()


def _cluster_figures(cluster: Cluster, rounds: int) -> dict[str, float]:
    here, there = [], []
    for _ in range(rounds):
        here.append(_start_seconds(cluster, "default"))
        there.append(_start_seconds(cluster, GROUP))
    begun = time.monotonic()
    report = checked(cluster.hub.rest("admin").post("/cluster-checks"), 200, 201)
    doctor = time.monotonic() - begun
    return {
        "nodes": len(report["nodes"]),
        "local_start_seconds": round(statistics.median(here), 2),
        "remote_start_seconds": round(statistics.median(there), 2),
        "remote_added_seconds": round(statistics.median(there) - statistics.median(here), 2),
        "join_seconds": round(statistics.median(node.join_seconds for node in cluster.nodes), 1),
        "doctor_seconds": round(doctor, 1),
        "lost_batch_seconds": round(_lost_batch_seconds(cluster), 1),
    }


def _lost_batch_seconds(cluster: Cluster) -> float:
    session = cluster.start("user", type="batch", startup_command="sleep 600")
    node = cluster.node_of(session)
    begun = time.monotonic()
    node.kill()
    again = cluster.wait_for_restart("user", session["id"])
    seconds = time.monotonic() - begun
    assert cluster.node_of(again) != node
    stop(cluster.hub.rest("user"), session["id"])
    return seconds


def _start_seconds(cluster: Cluster, group: str) -> float:
    begun = time.monotonic()
    session = cluster.start("user", resource_group=group)
    seconds = time.monotonic() - begun
    stop(cluster.hub.rest("user"), session["id"])
    return seconds


if __name__ == "__main__":
    sys.exit(main())
