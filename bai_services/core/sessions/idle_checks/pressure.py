"""Pressure: pending sessions that wait for the resources of running sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...scheduling.queue.explain import RESERVATION, RESOURCES

# Family of sessions that request no device.
_NO_DEVICE = ""


@dataclass(frozen=True, slots=True)
class WaitingSession:
    """A pending session, the families of its devices, and why it is pending."""

    resource_group: str
    families: frozenset[str]
    reasons: Iterable[Mapping[str, Any]]

    @property
    def waits_for_resources(self) -> bool:
        """Whether the session is pending because resources are in use or reserved.

        Otherwise, it waits for something else, such as a quota or a dependency.
        """
        failed = {check.get("check") for check in self.reasons if not check.get("passed")}
        return bool(failed & {RESOURCES, RESERVATION})


# Number of waiting sessions by resource group and device families.
WaitingCounts = Mapping[tuple[str, frozenset[str]], int]


def count_waiting(sessions: Iterable[WaitingSession]) -> WaitingCounts:
    """Return the number of waiting sessions for each resource group and set of device families."""
    counts: dict[tuple[str, frozenset[str]], int] = {}
    for session in sessions:
        if session.waits_for_resources:
            key = (session.resource_group, session.families or frozenset({_NO_DEVICE}))
            counts[key] = counts.get(key, 0) + 1
    return counts


def waiting_for(group: str, families: Collection[str], counts: WaitingCounts) -> int:
    """Return the number of sessions that wait for resources of a session with these families.

    Sessions without devices wait for CPU and memory, which every session holds.
    """
    held = {_NO_DEVICE, *families}
    return sum(
        count for (of_group, wanted), count in counts.items() if of_group == group and wanted & held
    )
