"""Versions of the protocol between agents and managers (docs/protocols.md)."""

from __future__ import annotations

from ..errors import Conflict

PROTOCOL = 2
"""Version of this release. 2: agents stop kernels while the manager cannot be reached."""
FIRST_PROTOCOL = 1
"""Version of an agent or a manager that sends no version."""
MAX_DIFFERENCE = 1
MAX_REPORTS = 100
"""Maximum number of reports in one request of an agent."""


def is_supported(other: int, own: int = PROTOCOL) -> bool:
    """Return whether a process of version ``own`` is compatible with a process of version
    ``other``.
    """
    return abs(other - own) <= MAX_DIFFERENCE


def check_agent(agent: int, manager: int = PROTOCOL) -> None:
    """Raise ``Conflict`` if the manager is not compatible with this version of an agent."""
    if is_supported(agent, manager):
        return
    oldest, newest = max(FIRST_PROTOCOL, manager - MAX_DIFFERENCE), manager + MAX_DIFFERENCE
    remedy = (
        "install the manager's release of bai-hub on the agent's machine, and restart the agent"
        if agent < manager
        else "upgrade the manager first"
    )
    raise Conflict(
        f"this agent has version {agent} of the agent protocol, but this manager works with "
        f"versions {oldest} to {newest}: {remedy}",
        protocol=manager,
    )


class IncompatibleManager(Conflict):
    """The protocol version of the manager is not compatible with this agent."""


def check_manager(manager: int, agent: int = PROTOCOL) -> None:
    """Raise ``IncompatibleManager`` if this agent cannot work with this version of a manager."""
    if not is_supported(manager, agent):
        remedy = "upgrade the manager first" if manager < agent else "upgrade this agent"
        raise IncompatibleManager(
            f"the manager has version {manager} of the agent protocol, and this agent version "
            f"{agent}; they may differ by {MAX_DIFFERENCE}: {remedy}"
        )
