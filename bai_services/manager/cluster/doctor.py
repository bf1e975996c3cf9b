"""Check all nodes of the installation: `bai admin cluster doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker

from bai_services import __version__
from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.doctor import (
    NO_REPORT,
    ClusterReport,
    NodeReport,
    NodeResult,
    check_node,
    compare_engines,
    compare_protocols,
    compare_status,
    compare_storage,
    compare_versions,
    unreachable_endpoint,
)
from bai_services.core.cluster.model import AgentStatus, EngineName
from bai_services.core.cluster.protocol import FIRST_PROTOCOL
from bai_services.core.errors import BaiError
from bai_services.core.installation.findings import (
    Finding,
    error,
    findings_from_json,
    ok,
    worst,
)
from bai_services.core.listing import ListQuery
from bai_services.db.cluster.agent_checks import AgentCheckStore
from bai_services.db.cluster.agents import AgentRow, AgentStore
from bai_services.docker_clients import DockerClients, EngineUnavailable
from bai_services.system.bounded_calls import BoundedCalls

from ..accounts import authorizer
from ..context import ManagerContext
from ..folders.storage_hosts import StorageHosts
from ..settings import Settings
from .joining import storage_paths
from .swarm import Swarm, SwarmNode

CHECK = "check"
# The sum of these limits is below 10 s, which is the duration if every node hangs.
PREPARATION_SECONDS = 1.5
REPORT_SECONDS = 7.0
POLL_SECONDS = 0.1
# Open checks are read again after this time, because another manager may request a check.
CACHE_TTL_SECONDS = 2.0
EXPIRY = timedelta(seconds=30)
MAX_NODES = 1000
MAX_ID = 128


class ClusterDoctor:
    """Requests a check of every agent, and compares the reports with the manager's view."""

    def __init__(
        self,
        context: ManagerContext,
        settings: Settings,
        swarm: Swarm,
        hosts: StorageHosts,
        wake: Callable[[Iterable[str]], None],
    ) -> None:
        self._store = AgentCheckStore(context.database)
        self._agents = AgentStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._storage = storage_paths(settings)
        self._swarm = swarm
        self._hosts = hosts
        self._wake = wake
        # An attribute, so that tests can set a shorter time.
        self.report_seconds = REPORT_SECONDS
        self._calls: BoundedCalls[Any] = BoundedCalls()
        # Open checks by agent, and the monotonic time at which they were read.
        self._open: tuple[float, Mapping[str, str]] | None = None
        # Addresses of the Swarm's nodes at the last check.
        self._peers: Sequence[str] = ()

    async def check(self, caller: Caller) -> ClusterReport:
        """Check all nodes; the call takes at most ``PREPARATION_SECONDS + REPORT_SECONDS``."""
        authorizer.require(caller, "agent.write")
        self._hosts.probe_soon()
        page = await self._agents.page(ListQuery(limit=MAX_NODES, sort=("id",)))
        alive = [agent for agent in page.items if agent.status == AgentStatus.ALIVE]
        check_id = str(uuid.uuid4())
        marker = _marker(check_id)
        own, nodes = await asyncio.gather(self._prepare(marker), self._swarm_nodes())
        if isinstance(nodes, Finding):
            own.append(nodes)
        states = nodes if isinstance(nodes, dict) else None
        self._peers = [node.address for node in (states or {}).values() if node.address]
        entry = self._audit.entry(caller, "cluster.check", check_id, agents=len(alive))
        await self._store.request(check_id, [agent.id for agent in alive], self._clock(), entry)
        self._open = None
        self._wake([agent.id for agent in alive])
        try:
            reports, engines = await asyncio.gather(
                self._wait(check_id, len(alive)), self._reach_engines(alive)
            )
        finally:
            await asyncio.to_thread(
                self._calls.run, {"remove": partial(self._remove, marker)}, PREPARATION_SECONDS
            )
        checked = [
            _node_report(agent, _result(reports.get(agent.id)), engines, states)
            for agent in page.items
        ]
        every = [*own, *(finding for node in checked for finding in node.findings)]
        return ClusterReport(self._clock(), worst(every), own, checked)

    async def work_items(self, agent_id: str) -> list[dict[str, Any]]:
        """Return the open check of an agent."""
        if self._open is None or time.monotonic() - self._open[0] > CACHE_TTL_SECONDS:
            open_checks = await self._store.open(self._clock() - EXPIRY)
            self._open = time.monotonic(), open_checks
        check_id = self._open[1].get(agent_id)
        if check_id is None:
            return []
        return [
            {
                "id": f"{CHECK}-{check_id}",
                "kind": CHECK,
                "storage": [{"name": one.name, "path": one.path} for one in self._storage],
                "peers": list(self._peers),
                "marker": _marker(check_id),
            }
        ]

    async def report(self, agent_id: str, report: Mapping[str, Any]) -> None:
        """Store the result of an agent's check."""
        check_id = str(report.get("work_id")).removeprefix(f"{CHECK}-")
        result = report.get("check") or {}
        bounded = {
            "findings": [one.as_dict() for one in findings_from_json(result.get("findings"))],
            "engine_id": str(result.get("engine_id") or "")[:MAX_ID],
            "node_id": str(result.get("node_id") or "")[:MAX_ID],
        }
        await self._store.report(agent_id, check_id, bounded)
        self._open = None

    async def _prepare(self, marker: str) -> list[Finding]:
        """Write a marker to each storage host; agents use it to recognize the file system."""
        calls = {one.name: partial(_write_marker, Path(one.path), marker) for one in self._storage}
        results = await asyncio.to_thread(self._calls.run, calls, PREPARATION_SECONDS)
        findings = []
        for one in self._storage:
            result = results.get(one.name, TimeoutError("it hangs"))
            name = f"storage {one.name}"
            if isinstance(result, Exception):
                remedy = "mount the file system, and check its owner and mount options"
                findings.append(error(name, f"{one.path} cannot be written: {result}", remedy))
            else:
                findings.append(ok(name, f"{one.path} is writable"))
        return findings

    def _remove(self, marker: str) -> None:
        for one in self._storage:
            with contextlib.suppress(OSError):
                (Path(one.path) / marker).unlink()

    async def _swarm_nodes(self) -> Mapping[str, SwarmNode] | Finding | None:
        try:
            async with asyncio.timeout(PREPARATION_SECONDS):
                return await self._swarm.nodes()
        except (BaiError, TimeoutError) as problem:
            text = str(problem) or "the Docker engine at BAI_SWARM_HOST does not respond in time"
            return error("swarm", text, "start Docker, and check BAI_SWARM_HOST")

    async def _wait(self, check_id: str, count: int) -> Mapping[str, Mapping[str, Any]]:
        """Wait for ``count`` reports, or the time limit; return the reports by agent id."""
        deadline = time.monotonic() + self.report_seconds
        while True:
            reports = await self._store.results(check_id)
            if len(reports) >= count or time.monotonic() > deadline:
                return reports
            await asyncio.sleep(POLL_SECONDS)

    async def _reach_engines(self, agents: Sequence[AgentRow]) -> Mapping[str, str | None]:
        """Return the id of the engine at each endpoint; None if it does not respond.

        The id is "" if the engine accepts TCP connections, but the manager has no client
        certificate for it.
        """
        endpoints = {agent.endpoint for agent in agents if agent.engine == EngineName.DOCKER}
        calls = {endpoint: partial(_engine_id, endpoint) for endpoint in endpoints}
        results = await asyncio.to_thread(self._calls.run, calls, self.report_seconds)
        return {
            endpoint: None if isinstance(result, Exception) else str(result)
            for endpoint, result in ((each, results.get(each, TimeoutError())) for each in calls)
        }


def _marker(check_id: str) -> str:
    return f".bai-check-{check_id}"


def _write_marker(folder: Path, marker: str) -> None:
    (folder / marker).write_text(marker)


def _engine_id(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme in ("tcp", "https"):
        address = (parts.hostname or "", parts.port or 2376)
        socket.create_connection(address, REPORT_SECONDS - 1).close()
        return ""
    if parts.scheme == "unix":
        # docker-py leaks the socket of a failed connection.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(parts.path)
    clients = DockerClients(REPORT_SECONDS - 1)
    try:
        return str(clients.call(endpoint, lambda client: client.info()["ID"]))
    except (EngineUnavailable, docker.errors.DockerException) as problem:
        raise OSError(str(problem)) from problem
    finally:
        clients.close()


def _result(report: Mapping[str, Any] | None) -> NodeResult | None:
    if report is None:
        return None
    return NodeResult(
        findings_from_json(report["findings"]), report["engine_id"], report["node_id"]
    )


def _node_report(
    agent: AgentRow,
    result: NodeResult | None,
    engines: Mapping[str, str | None],
    nodes: Mapping[str, SwarmNode] | None,
) -> NodeReport:
    findings = list(compare_status(agent.status, agent.last_heartbeat_at))
    if agent.status == AgentStatus.ALIVE:
        findings.append(compare_versions(agent.version, __version__))
        old = compare_protocols(int(agent.facts.get("protocol", FIRST_PROTOCOL)))
        findings += [] if old is None else [old]
        findings += [NO_REPORT] if result is None else result.findings
        findings += compare_storage(agent.storage_problems, () if result is None else findings)
        if agent.engine == EngineName.DOCKER:
            findings.append(_endpoint(agent.endpoint, result, engines.get(agent.endpoint)))
        if nodes is not None and result is not None and agent.engine == EngineName.DOCKER:
            states = {key: node.state for key, node in nodes.items()}
            swarm = check_node(result, states)
            findings += [] if swarm is None else [swarm]
    return NodeReport(agent.id, agent.resource_group, agent.status, worst(findings), findings)


def _endpoint(endpoint: str, result: NodeResult | None, reached: str | None) -> Finding:
    if reached is None:
        return unreachable_endpoint(endpoint)
    if not reached or result is None or not result.engine_id:
        return ok("endpoint", f"the manager's machine connects to {endpoint}")
    return compare_engines(endpoint, result.engine_id, reached)
