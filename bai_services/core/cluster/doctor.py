"""Report of `bai admin cluster doctor`, and the checks that compare a node with the manager."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..installation.findings import Finding, Level, error, ok, warning
from .model import AgentStatus
from .protocol import PROTOCOL


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Findings about the machine of an agent; ``level`` is the worst level of a finding."""

    agent_id: str
    resource_group: str
    status: str
    level: str
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Findings about the manager's machine and about ``nodes``; ``level`` is the worst of all."""

    checked_at: datetime
    level: str
    findings: Sequence[Finding]
    nodes: Sequence[NodeReport]


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The report of an agent: its findings, and the ids of its engine and its Swarm node."""

    findings: Sequence[Finding]
    engine_id: str
    node_id: str


def compare_status(status: str, last_heartbeat_at: datetime) -> Iterator[Finding]:
    """Yield a finding about an agent that cannot be checked."""
    at = f"{last_heartbeat_at:%Y-%m-%d %H:%M:%S} UTC"
    if status == AgentStatus.LOST:
        yield error(
            "agent",
            f"no heartbeat since {at}",
            "start the agent (systemctl start bai-agent), and check the network of the node",
        )
    elif status == AgentStatus.TERMINATED:
        yield warning(
            "agent",
            f"it was stopped at {at}",
            "start it, or delete it: bai admin agent delete",
        )


def compare_versions(agent: str, manager: str) -> Finding:
    if agent == manager:
        return ok("version", f"{agent}, like the manager")
    return warning(
        "version",
        f"the agent has version {agent}, the manager {manager}",
        "install the same version on both machines, and restart the agent",
    )


def compare_protocols(agent: int) -> Finding | None:
    """Return a finding about an agent whose protocol is older than the manager's."""
    if agent >= PROTOCOL:
        return None
    return warning(
        "protocol",
        f"the agent has version {agent} of the agent protocol, the manager {PROTOCOL}",
        "upgrade the agent: it will not work with the next release of the manager",
    )


def compare_storage(problems: Mapping[str, str], findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a finding for each storage host that the agent has reported as not working, unless
    ``findings`` already contain an error about that host.
    """
    found = {one.check for one in findings if one.level == Level.ERROR}
    for host, problem in sorted(problems.items()):
        if (name := f"storage {host}") not in found:
            yield error(
                name,
                f"no session with folders on this storage host is placed here ({problem})",
                "see the agent's log; the agent checks the file system every few seconds",
            )


def compare_engines(endpoint: str, agent: str, manager: str) -> Finding:
    """Check that the agent and the manager reach the same engine at the agent's endpoint."""
    if agent == manager:
        return ok("endpoint", f"the manager's machine reaches the engine at {endpoint}")
    return error(
        "endpoint",
        f"at {endpoint}, the manager's machine and the agent reach different engines",
        "set BAI_AGENT_DOCKER_ENDPOINT to a URL at which the Hub reaches this node's engine, and "
        "accept it with `bai admin agent update`",
    )


def unreachable_endpoint(endpoint: str) -> Finding:
    return error(
        "endpoint",
        f"the manager's machine does not reach the engine at {endpoint}",
        "check BAI_AGENT_DOCKER_ENDPOINT, the firewall, and the certificates or SSH keys",
    )


def check_node(result: NodeResult, states: Mapping[str, str]) -> Finding | None:
    """Check the state of a node of the Swarm; ``states`` has the state of each node by its id.

    None: its engine has not responded, which is a finding already.
    """
    if not result.engine_id:
        return None
    if not result.node_id:
        return error(
            "swarm", "the engine is not a node of the Swarm", "run bai-agent join on this node"
        )
    state = states.get(result.node_id)
    if state == "ready":
        return ok("swarm node", "its state is ready")
    return error(
        "swarm node",
        f"its state is {state}" if state else "it is a node of another Swarm",
        "open the ports 2377/tcp, 7946/tcp, 7946/udp and 4789/udp between the nodes, or run "
        "bai-agent leave and join again",
    )


NO_REPORT = error(
    "agent",
    "it did not report in time",
    "see the agent's log; an agent of an older version cannot be checked",
)
