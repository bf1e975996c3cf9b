"""Find the resource groups to which a pending session may move by the rules of its project."""

from __future__ import annotations

from collections.abc import Sequence

from bai_services.core.scheduling.estimates.explainer import Choices
from bai_services.core.scheduling.overflow import (
    MOVABLE_TYPES,
    OverflowRule,
    OverflowTarget,
    targets,
)
from bai_services.core.sessions.kernel_group import total_slots
from bai_services.core.usage.model import Prices
from bai_services.db.scheduling.overflow import OverflowStore, has_fixed_place
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.usage.prices import UsagePriceStore


class OverflowTargets:
    """Finds the resource groups to which pending sessions may move."""

    def __init__(self, store: OverflowStore, prices: UsagePriceStore) -> None:
        self._store = store
        self._prices = prices

    async def of(self, row: SessionRow, choices: Choices) -> list[OverflowTarget]:
        """Return the targets of a pending session, with the earliest times of the moves.

        ``choices``: what its owner may use.
        """
        if row.type not in MOVABLE_TYPES:
            return []
        rules = await self._store.of(row.project_id, row.resource_group)
        since = await self._store.movable_since(row) if rules else None
        if since is None:
            return []
        return targets(
            rules, choices.groups, costs_of(row, rules, await self._prices.read()), since
        )

    async def of_new(self, row: SessionRow, choices: Choices) -> list[OverflowTarget]:
        """Return the targets of a session that does not exist yet."""
        if row.type not in MOVABLE_TYPES or has_fixed_place(row):
            return []
        rules = await self._store.of(row.project_id, row.resource_group)
        if not rules:
            return []
        return targets(rules, choices.groups, costs_of(row, rules, await self._prices.read()), None)


def costs_of(
    row: SessionRow, rules: Sequence[OverflowRule], prices: Prices
) -> dict[str, float | None]:
    """Return the cost per hour of a session in the target of each rule."""
    slots = total_slots(row.requested_slots, row.cluster_size)
    return {rule.to_group: prices.cost_per_hour(rule.to_group, slots) for rule in rules}
