"""Advance reservations: members of a project request them, administrators approve them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target, reaches
from bai_services.core.cluster.devices import check_exclusive
from bai_services.core.errors import Forbidden, InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.notifications.events import (
    Event,
    reservation_decided,
    reservation_requested,
)
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.advance_reservations import (
    DEFAULT_GRACE_SECONDS,
    AdvanceReservation,
    HeldAgents,
    check_period,
)
from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.scheduling.reservation_states import ReservationState
from bai_services.db.scheduling.advance_reservations import AdvanceReservationStore

from ..accounts import authorizer
from ..accounts.projects import Projects
from ..context import ManagerContext
from ..loop import Loop
from .lease import Lease

log = logging.getLogger(__name__)

# Interval between the checks that expire unused reservations.
TICK_SECONDS = 30.0
_APPROVE = "reservation.approve"


class AdvanceReservations:
    """Reserves agents of a resource group for a project; wakes the scheduler after a change."""

    def __init__(self, context: ManagerContext, projects: Projects, *, lease: Lease) -> None:
        self._store = AdvanceReservationStore(context.database)
        self._projects = projects
        self._clock = context.clock
        self._audit = context.audit
        self._capacity_changed: Callable[[], None] = context.capacity_changed
        self._lease = lease
        self._loop = Loop("advance reservations", self.step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Record which reservations are used, and expire unused reservations."""
        if await self._lease.hold() is None:
            return
        expired = await self._store.record_use(self._clock())
        if expired:
            log.info("unused reservations have expired: %s", ", ".join(expired))
            self._capacity_changed()

    async def page(self, caller: Caller, query: ListQuery) -> Page[AdvanceReservation]:
        """Return the reservations of the projects that the caller may see."""
        visible = authorizer.visibility(caller, "reservation.read")
        return await self._store.page(query, visible)

    async def get(self, caller: Caller, key: str) -> AdvanceReservation:
        return (await self._find(caller, key))[0]

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> AdvanceReservation:
        """Request a reservation; it is approved at once if the caller may approve it.

        Raises
        ------
        InvalidRequest
            If the period, a name or the resources are not valid, or a user is not a member.
        BaiError
            The errors of ``AdvanceReservationStore.create``.
        """
        authorizer.require(caller, "reservation.create")
        project = await self._projects.get(caller, spec["project"])
        target = Target(domain=project.domain, project_id=project.id)
        authorizer.require(caller, "reservation.create", target)
        now, grace = self._clock(), spec.get("grace_seconds", DEFAULT_GRACE_SECONDS)
        check_period(spec["starts_at"], spec["ends_at"], now, grace)
        resources = ResourceSlots.parse(spec["resources"])
        whole_machines = spec.get("whole_machines", False)
        if not whole_machines:
            check_exclusive(resources)
            if not resources:
                raise InvalidRequest("a reservation needs resources", field="resources")
        is_approved = reaches(caller, _APPROVE, target)
        values = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "name": check_slug("reservation", spec["name"]),
            "project_id": project.id,
            "resource_group": spec["resource_group"],
            "nodes": spec.get("nodes", 1),
            "resources": resources,
            "whole_machines": whole_machines,
            "user_ids": await self._user_ids(project.id, spec.get("users", ())),
            "starts_at": spec["starts_at"],
            "ends_at": spec["ends_at"],
            "grace_seconds": grace,
            "state": ReservationState.APPROVED if is_approved else ReservationState.REQUESTED,
            "note": spec.get("note", ""),
            "author_id": caller.user_id or "",
            "author": caller.username,
            "decided_by": caller.username if is_approved else "",
        }
        entry = self._audit.entry(
            caller,
            "reservation.create",
            values["id"],
            domain=project.domain,
            name=values["name"],
            project=project.name,
            state=str(values["state"]),
        )
        requested = reservation_requested(
            values["id"],
            now,
            project.domain,
            values["starts_at"],
            name=values["name"],
            project=project.name,
            user=caller.username,
        )
        created = await self._store.create(values, entry, None if is_approved else requested)
        self._capacity_changed()
        return created

    async def decide(self, caller: Caller, key: str, state: ReservationState) -> AdvanceReservation:
        """Approve or reject a requested reservation, or cancel an open one.

        Raises
        ------
        Forbidden
            If the caller may not decide about reservations of the project, or may not cancel this
            reservation.
        Conflict
            If the reservation is no longer open, or its agents can no longer be reserved.
        InvalidRequest
            If ``state`` is not one of these three decisions.
        """
        found, author = await self._find(caller, key)
        is_cancelled = state is ReservationState.CANCELLED
        _require(caller, "reservation.cancel" if is_cancelled else _APPROVE, found, author)
        verb = {
            ReservationState.APPROVED: "approve",
            ReservationState.REJECTED: "reject",
            ReservationState.CANCELLED: "cancel",
        }.get(state)
        if verb is None:
            raise InvalidRequest(f"a reservation cannot be set to {state}", field="state")
        entry = self._audit.entry(
            caller,
            f"reservation.{verb}",
            found.id,
            domain=found.domain,
            name=found.name,
            project=found.project,
        )
        now, by = self._clock(), caller.username or str(caller.role)
        event: Event | None = None
        if author is not None and author.id != caller.user_id:
            event = reservation_decided(
                found.id,
                now,
                author.id,
                found.domain,
                state,
                found.starts_at,
                name=found.name,
                user=by,
            )
        decided = await self._store.decide(found.id, state, by, now, entry, event)
        self._capacity_changed()
        return decided

    async def preview_approval(
        self, caller: Caller, key: str
    ) -> tuple[AdvanceReservation, HeldAgents]:
        """Return a reservation, and what an approval would reserve.

        Raises
        ------
        Forbidden
            If the caller may not approve reservations of the project.
        """
        found, author = await self._find(caller, key)
        _require(caller, _APPROVE, found, author)
        return found, await self._held(found)

    async def held(self, caller: Caller, key: str) -> tuple[AdvanceReservation, HeldAgents]:
        """Return a reservation that the caller may see, and what it reserves."""
        found, _ = await self._find(caller, key)
        return found, await self._held(found)

    async def _held(self, found: AdvanceReservation) -> HeldAgents:
        users = await self._store.member_ids(found.project_id, list(found.users))
        return HeldAgents(
            found.id,
            found.project,
            found.starts_at,
            found.ends_at,
            frozenset(found.agents),
            Scope(ScopeKind.PROJECT, found.project_id),
            frozenset(Scope(ScopeKind.USER, user_id) for user_id in users.values()),
            booked=ResourceSlots() if found.whole_machines else found.resources,
        )

    async def _find(self, caller: Caller, key: str) -> tuple[AdvanceReservation, Owner | None]:
        visible = authorizer.visibility(caller, "reservation.read")
        return await self._store.one(key.replace("\0", ""), visible)

    async def _user_ids(self, project_id: str, names: Sequence[str]) -> list[str]:
        ids = await self._store.member_ids(project_id, list(names))
        if missing := [name for name in names if name not in ids]:
            raise InvalidRequest(f"{missing[0]!r} is not a member of the project", field="users")
        return sorted(ids.values())


def _require(caller: Caller, action: str, found: AdvanceReservation, author: Owner | None) -> None:
    """Raise ``Forbidden`` if the caller may not perform an action on a reservation."""
    if not reaches(caller, action, Target(found.domain, None, author)):
        # The caller can see the reservation, so there is no need to hide it.
        raise Forbidden(
            f"{caller.username or caller.role} ({caller.role}) may not perform {action} here",
            action=action,
        )
