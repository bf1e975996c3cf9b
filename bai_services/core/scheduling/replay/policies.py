"""The policy of a replay: order and options of a resource group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...cluster.group_options import GroupOptions
from ...errors import InvalidRequest
from ...user_input import shown
from ..placement import AgentState
from ..queue import Order
from .simulate import Conditions, OnProgress, Replay, ignore_progress, replay
from .workload import GROUP, Job

# The fields of a resource group that a replay uses.
SCHEDULER = "scheduler"
OPTIONS = "scheduler_opts"


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """Order and options of a resource group, with a name for the report."""

    name: str
    order: Order
    options: GroupOptions

    @classmethod
    def of(cls, document: Any, name: str) -> ReplayPolicy:
        """Parse ``{"scheduler": …, "scheduler_opts": {…}}``, as in a resource group.

        Raises
        ------
        InvalidRequest
            If the document has another form, or an option is unknown or invalid.
        """
        if not isinstance(document, Mapping):
            raise InvalidRequest(f"policy {name}: write a map with {SCHEDULER} and {OPTIONS}")
        unknown = sorted(map(str, set(document) - {SCHEDULER, OPTIONS}))
        if unknown:
            raise InvalidRequest(
                f"policy {name}: {', '.join(unknown)[:200]}: unknown field; use only "
                f"{SCHEDULER} and {OPTIONS}",
                field=unknown[0],
            )
        order = document.get(SCHEDULER, Order.FIFO)
        if not isinstance(order, str) or order not in set(Order):
            raise InvalidRequest(
                f"policy {name}: {shown(order)!r} is not a valid {SCHEDULER}; "
                f"use one of: {', '.join(Order)}",
                field=SCHEDULER,
            )
        options = document.get(OPTIONS) or {}
        if not isinstance(options, Mapping):
            raise InvalidRequest(f"policy {name}: {OPTIONS} must be a map", field=OPTIONS)
        return cls(name, Order(order), GroupOptions.of(options))

    def replay(
        self,
        jobs: Sequence[Job],
        agents: Sequence[AgentState],
        *,
        group: str = GROUP,
        conditions: Conditions | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> Replay:
        """Replay a workload of ``group`` under this policy."""
        return replay(
            jobs,
            agents,
            self.options.state(group, self.order, True),
            strategy=self.options.strategy,
            allow_fragmentation=self.options.allow_fractional_resource_fragmentation,
            conditions=conditions,
            on_progress=on_progress,
        )
