"""Pressure: pending sessions that wait for resources that a running session holds."""

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
        """Whether it is pending because resources are in use or reserved.

        Otherwise it waits for something else, such as a quota or a dependency.
        """
        failed = {check.get("check") for check in self.reasons if not check.get("passed")}
        return bool(failed & {RESOURCES, RESERVATION})


def count_waiting(sessions: Iterable[WaitingSession]) -> dict[tuple[str, str], int]:
    """Return the number of waiting sessions for each resource group and device family."""
    counts: dict[tuple[str, str], int] = {}
    for session in sessions:
        if session.waits_for_resources:
            for family in session.families or {_NO_DEVICE}:
                key = (session.resource_group, family)
                counts[key] = counts.get(key, 0) + 1
    return counts


def waiting_for(
    group: str, families: Collection[str], counts: Mapping[tuple[str, str], int]
) -> int:
    """Return how many sessions wait for the resources of a session with these families.

    Every session holds CPU and memory, for which sessions without devices wait.
    """
    return sum(counts.get((group, family), 0) for family in {_NO_DEVICE, *families})
