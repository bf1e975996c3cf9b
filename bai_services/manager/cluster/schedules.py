"""The schedule of a resource group, with the sessions that the caller may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.resources import ResourceSlots, format_amount
from bai_services.core.scheduling.estimates.schedule import Lane, group_schedule
from bai_services.core.scheduling.placement import Placement
from bai_services.core.scheduling.queue import Certainty, Order
from bai_services.db.scheduling.advance_reservations import AdvanceReservationStore

from ..accounts import authorizer
from ..clock import Clock
from ..scheduling.scheduler import Scheduler
from ..sessions.names import SessionName, visible_names
from ..sessions.sessions import Sessions
from .resource_groups import ResourceGroups

MAX_RUNNING = 300
MAX_WAITING = 200


@dataclass(frozen=True, slots=True)
class DeviceShare:
    device_id: str
    slot: str
    amount: str


@dataclass(frozen=True, slots=True)
class ScheduledKernel:
    agent_id: str
    slots: ResourceSlots
    devices: tuple[DeviceShare, ...]


@dataclass(frozen=True, slots=True)
class ScheduledSession:
    """A running or pending session.

    ``session`` is None, and ``reason`` empty, if the caller may not see the session. ``position``
    and ``priority`` are None for a running session. ``kernels`` is empty for a pending session
    without a reservation. ``starts_at`` and ``ends_at`` are None if unknown. ``certainty``
    refers to the end of a running session or to the start of a pending session. ``standing`` is the
    ascending sort key of drf and fair-share among the pending sessions of one priority; it is
    empty for running sessions, and under other orders.
    """

    session: SessionName | None
    kernels: tuple[ScheduledKernel, ...]
    starts_at: datetime | None
    ends_at: datetime | None
    certainty: Certainty
    position: int | None = None
    priority: int | None = None
    reason: str = ""
    reason_coded: Mapping[str, Any] | None = None
    standing: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduledReservation:
    """An approved advance reservation that has not ended."""

    id: str
    name: str
    project: str
    agents: tuple[str, ...]
    resources: ResourceSlots
    whole_machines: bool
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Schedule:
    """``running_count`` and ``waiting_count`` include sessions beyond the limits of the lists.

    If ``is_complete`` is false, this manager is on standby or is still loading the queue; the lists
    are then empty.
    """

    resource_group: str
    is_complete: bool
    at: datetime
    order: Order
    lanes: tuple[Lane, ...] = ()
    running: tuple[ScheduledSession, ...] = ()
    waiting: tuple[ScheduledSession, ...] = ()
    running_count: int = 0
    waiting_count: int = 0
    reservations: tuple[ScheduledReservation, ...] = ()


class Schedules:
    """Reads schedules from the scheduler's queue."""

    def __init__(
        self,
        groups: ResourceGroups,
        scheduler: Scheduler,
        sessions: Sessions,
        reservations: AdvanceReservationStore,
        clock: Clock,
    ) -> None:
        self._reservations = reservations
        self._clock = clock
        self._groups = groups
        self._scheduler = scheduler
        self._sessions = sessions

    async def get(self, caller: Caller, group: str) -> Schedule:
        """Return the running and pending sessions of a resource group, with agents and end times.

        Raises
        ------
        Forbidden
            If the caller may not read agents.
        NotFound
            If there is no such group.
        """
        authorizer.require(caller, "agent.read")
        resource_group = await self._groups.get(caller, group)
        await self._scheduler.wait_for_changes()
        schedule = await self._scheduler.query(
            partial(group_schedule, group=group, max_running=MAX_RUNNING, max_waiting=MAX_WAITING)
        )
        if schedule is None:
            return Schedule(group, False, self._clock(), Order(resource_group.scheduler))
        ids = [part.session_id for part in schedule.running]
        ids += [part.session_id for part in schedule.waiting]
        names = await visible_names(self._sessions, caller, ids)
        return Schedule(
            resource_group=group,
            is_complete=True,
            at=schedule.at,
            order=schedule.order,
            lanes=schedule.lanes,
            running=tuple(
                ScheduledSession(
                    names.get(part.session_id),
                    kernels=_kernels(part.placements),
                    starts_at=part.starts_at,
                    ends_at=part.ends_at,
                    certainty=part.certainty,
                )
                for part in schedule.running
            ),
            waiting=tuple(
                ScheduledSession(
                    names.get(part.session_id),
                    kernels=_kernels(part.placements),
                    starts_at=part.starts_at,
                    ends_at=part.ends_at,
                    certainty=part.certainty,
                    position=part.position,
                    priority=part.priority,
                    reason=part.reason if part.session_id in names else "",
                    reason_coded=part.reason_coded if part.session_id in names else None,
                    standing=part.standing,
                )
                for part in schedule.waiting
            ),
            running_count=schedule.running_count,
            waiting_count=schedule.waiting_count,
            reservations=await self._current_reservations(group),
        )

    async def _current_reservations(self, group: str) -> tuple[ScheduledReservation, ...]:
        """Return the reservations of a group; their projects are visible to all administrators, as
        in the reasons of sessions that wait for them.
        """
        return tuple(
            ScheduledReservation(
                one.id,
                one.name,
                one.project,
                tuple(one.agents),
                one.resources,
                one.whole_machines,
                one.starts_at,
                one.ends_at,
            )
            for one in await self._reservations.current(group, self._clock())
        )


def _kernels(placements: Sequence[Placement]) -> tuple[ScheduledKernel, ...]:
    return tuple(
        ScheduledKernel(
            placement.agent_id,
            placement.slots,
            tuple(
                DeviceShare(d.device_id, d.slot, format_amount(d.slot, d.amount))
                for d in placement.devices
            ),
        )
        for placement in placements
    )
