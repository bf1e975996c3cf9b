"""Start and stop machines with the administrator's command, according to the demand of pending
sessions.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.provisioning import (
    COMING,
    MAX_STARTS,
    MachineEvent,
    MachineReason,
    MachineStatus,
    ProvisionedMachine,
    decide,
)
from bai_services.core.errors import BaiError, Conflict, InUse, InvalidTransition, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.machine_demand import machines_needed
from bai_services.db.cluster.provisioning import ProvisionedGroup, ProvisioningStore

from ..accounts import authorizer
from ..clock import monotonic_of
from ..context import ManagerContext
from ..loop import Loop
from ..scheduling.lease import Lease
from ..scheduling.scheduler import Scheduler
from ..settings import Settings
from .joining import AgentJoins
from .provisioning_command import (
    MAX_REFERENCE_CHARACTERS,
    CommandFailed,
    ProvisioningCommand,
)

log = logging.getLogger(__name__)

TICK_SECONDS = 5.0
MAX_CONCURRENT_CALLS = 8
# Time between two calls to stop the same machine.
STOP_RETRY_SECONDS = 60.0

_VERBS = {
    MachineEvent.JOINED: "join",
    MachineEvent.DRAINED: "drain",
    MachineEvent.RESUMED: "resume",
    MachineEvent.GIVEN_UP: "give-up",
    MachineEvent.EMPTIED: "stop",
}


class Provisioning:
    """Provisions machines while this manager holds the lease.

    All state is in the database: after a restart, calls that may not have ended are repeated.
    """

    def __init__(
        self,
        context: ManagerContext,
        settings: Settings,
        joins: AgentJoins,
        scheduler: Scheduler,
        lease: Lease,
    ) -> None:
        self._store = ProvisioningStore(context.database)
        self._joins = joins
        self._scheduler = scheduler
        self._lease = lease
        self._clock = context.clock
        self._monotonic = monotonic_of(context.clock)
        self._audit = context.audit
        self._capacity_changed = context.capacity_changed
        self._hub_url = (
            f"{settings.public_origin}{settings.hub_base_url}" if settings.public_origin else ""
        )
        self.command = (
            ProvisioningCommand(
                settings.provisioning_command, settings.provisioning_timeout_seconds
            )
            if settings.provisioning_command
            else None
        )
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._stop_again_at: dict[str, float] = {}
        self._loop = Loop("provisioning", self.step, TICK_SECONDS)

    def start(self) -> None:
        if self.command is not None:
            self._loop.start()

    async def stop(self) -> None:
        """Stop the loop, and kill running commands; the next start calls them again."""
        await self._loop.stop()
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def wait(self) -> None:
        """Wait for the running calls of the command."""
        await asyncio.gather(*self._calls.values())

    async def page(self, caller: Caller, query: ListQuery) -> Page[ProvisionedMachine]:
        authorizer.require(caller, "agent.read")
        return await self._store.page(query)

    async def get(self, caller: Caller, machine_id: str) -> ProvisionedMachine:
        authorizer.require(caller, "agent.read")
        return await self._find(machine_id)

    async def remove(self, caller: Caller, machine_id: str) -> None:
        """Stop a machine as soon as it has no sessions; it gets no new ones.

        Raises
        ------
        Conflict
            If the machine is already being stopped or has ended.
        """
        authorizer.require(caller, "agent.write")
        machine = await self._find(machine_id)
        event = MachineEvent.GIVEN_UP if machine.status in COMING else MachineEvent.DRAINED
        entry = self._audit.entry(
            caller,
            "provisioned-machine.delete",
            machine.id,
            resource_group=machine.resource_group,
            reference=machine.reference,
        )
        try:
            await self._store.apply(
                machine.id, event, self._clock(), entry, reason=MachineReason.STOP_REQUESTED
            )
        except InvalidTransition:
            raise Conflict(f"the machine is {machine.status}", status=machine.status) from None
        self._capacity_changed()
        self._loop.wake()

    async def step(self) -> None:
        """Decide about the machines of each resource group, and call the command."""
        if self.command is None or await self._lease.hold() is None:
            return
        now = self._clock()
        for group in await self._store.groups(now):
            await self._step(group, now)
        if deleted := await self._store.clean_up(now):
            log.info("agents of stopped machines were deleted: %s", ", ".join(deleted))
        self._calls = {key: call for key, call in self._calls.items() if not call.done()}
        # Read again: the decisions have changed the machines.
        for group in await self._store.groups(now):
            for one in group.machines:
                self._call(one.machine, group)

    async def _step(self, group: ProvisionedGroup, now: datetime) -> None:
        options = group.options
        demand: int | None = 0
        if options.maximum:
            coming = sum(one.status in COMING for one in group.machines)
            limit = min(options.maximum, coming + MAX_STARTS)
            demand = await self._scheduler.query(partial(_needed, group, limit, now))
        if demand is None:
            return  # the scheduler has no queue yet
        decision = decide(
            options, group.machines, demand, group.recent_starts, group.last_failure_at, now
        )
        by_id = {one.machine.id: one.machine for one in group.machines}
        for machine_id, event in decision.events:
            await self._apply(by_id[machine_id], event, now)
        for _ in range(decision.starts):
            await self._request(group, now, demand)
        if decision.starts or decision.events:
            self._capacity_changed()

    async def _request(self, group: ProvisionedGroup, now: datetime, demand: int) -> None:
        machine = ProvisionedMachine(
            id=str(uuid.uuid4()),
            created_at=now,
            resource_group=group.name,
            status=MachineStatus.REQUESTED,
            status_changed_at=now,
            slots=group.options.machine,
            reference="",
            agent_id=None,
            joined_at=None,
            reason=MachineReason.NONE,
            message="",
        )
        entry = self._audit.system(
            "provisioned-machine.start", machine.id, resource_group=group.name, demand=demand
        )
        await self._store.add(machine, entry)

    async def _apply(
        self, machine: ProvisionedMachine, event: MachineEvent, now: datetime, **facts: Any
    ) -> None:
        facts = {**_FACTS.get(event, {}), **facts}
        if event is MachineEvent.JOINED:
            facts |= {"joined_at": now, "idle_since": now}
        entry = None
        if event in _VERBS:
            entry = self._audit.system(
                f"provisioned-machine.{_VERBS[event]}",
                machine.id,
                resource_group=machine.resource_group,
                reference=machine.reference,
                agent=machine.agent_id,
                reason=facts.get("reason", machine.reason),
            )
        try:
            status = await self._store.apply(machine.id, event, now, entry, **facts)
        except (InvalidTransition, InUse) as error:
            log.info("machine %s of %s: %s", machine.id, machine.resource_group, error)
            return
        level = logging.WARNING if event is MachineEvent.GIVEN_UP else logging.INFO
        log.log(
            level,
            "machine %s (%s) of resource group %s: %s -> %s %s",
            machine.id,
            machine.reference,
            machine.resource_group,
            machine.status,
            status,
            " ".join(str(facts[name]) for name in ("reason", "message") if facts.get(name)),
        )

    def _call(self, machine: ProvisionedMachine, group: ProvisionedGroup) -> None:
        """Call the command for a machine that must be started or stopped."""
        if machine.id in self._calls or len(self._calls) >= MAX_CONCURRENT_CALLS:
            return
        if machine.status is MachineStatus.REQUESTED:
            call = self._start_machine(machine, group)
        elif (
            machine.status is MachineStatus.STOPPING
            and self._stop_again_at.get(machine.id, 0.0) <= self._monotonic()
        ):
            call = self._stop_machine(machine, group)
        else:
            return
        task = asyncio.create_task(call, name=f"provisioning {machine.id}")
        self._calls[machine.id] = task
        task.add_done_callback(_log_defect)

    async def _start_machine(self, machine: ProvisionedMachine, group: ProvisionedGroup) -> None:
        assert self.command is not None
        valid = timedelta(seconds=group.options.join_seconds)
        invitation = await self._joins.invite_machine(machine.id, group.name, valid)
        await self._store.set(machine.id, invitation_id=invitation.id)
        token = invitation.token
        request = {
            "action": "start",
            "machine": _described(machine, group),
            "join": {"url": self._hub_url, "token": token},
        }
        try:
            response = await self.command.run(request)
        except CommandFailed as error:
            facts = {
                "reason": MachineReason.START_FAILED,
                "message": str(error).replace(token, "[secret]"),
            }
            await self._apply(machine, MachineEvent.GIVEN_UP, self._clock(), **facts)
        else:
            reference = str(response.get("reference", ""))[:MAX_REFERENCE_CHARACTERS]
            await self._store.set(machine.id, reference=reference)
            # No effect if the agent of the machine has already joined.
            await self._apply(machine, MachineEvent.STARTED, self._clock())
        self._capacity_changed()
        self._loop.wake()

    async def _stop_machine(self, machine: ProvisionedMachine, group: ProvisionedGroup) -> None:
        assert self.command is not None
        try:
            await self.command.run({"action": "stop", "machine": _described(machine, group)})
        except CommandFailed as error:
            self._stop_again_at[machine.id] = self._monotonic() + STOP_RETRY_SECONDS
            await self._store.set(machine.id, reason=MachineReason.STOP_FAILED, message=str(error))
            log.warning(
                "machine %s (%s) cannot be stopped: %s", machine.id, machine.reference, error
            )
        else:
            self._stop_again_at.pop(machine.id, None)
            has_joined = machine.joined_at is not None
            event = MachineEvent.STOPPED if has_joined else MachineEvent.FAILED
            await self._apply(machine, event, self._clock())
        self._loop.wake()

    async def _find(self, machine_id: str) -> ProvisionedMachine:
        machine = await self._store.find(machine_id)
        if machine is None:
            raise NotFound("there is no such machine", machine=machine_id)
        return machine


_FACTS: dict[MachineEvent, dict[str, Any]] = {
    MachineEvent.GIVEN_UP: {"reason": MachineReason.NEVER_JOINED},
    MachineEvent.DRAINED: {"reason": MachineReason.IDLE},
    MachineEvent.RESUMED: {"reason": MachineReason.NONE},
}


def _needed(group: ProvisionedGroup, limit: int, now: datetime, why: Explainer) -> int:
    options = group.options
    return machines_needed(
        why.queue, group.name, options.machine, group.engine, options.architecture, limit, now
    )


def _described(machine: ProvisionedMachine, group: ProvisionedGroup) -> dict[str, Any]:
    return {
        "id": machine.id,
        "resource_group": machine.resource_group,
        "engine": group.engine,
        "architecture": group.options.architecture,
        "slots": machine.slots.format(),
        "reference": machine.reference,
        "agent_id": machine.agent_id or f"{machine.resource_group}-{machine.id[:8]}",
    }


def _log_defect(call: asyncio.Task[None]) -> None:
    if call.cancelled() or (error := call.exception()) is None:
        return
    trace = None if isinstance(error, BaiError) else error
    log.error("%s failed: %s", call.get_name(), error, exc_info=trace)
