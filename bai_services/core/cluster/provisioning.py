"""Provisioned machines: decide when to start a machine for pending sessions, and when to stop it.

A command of the administrator starts and stops the machines (``manager/cluster/provisioning.py``).
``decide`` is a pure function of the machines, the demand and the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from ..errors import InvalidTransition
from ..resources import ResourceSlots
from .model import AgentStatus

MAX_MACHINES = 1000
# Maximum number of machines that one decision starts.
MAX_STARTS = 10
MAX_SECONDS = 7 * 24 * 3600
MIN_JOIN_SECONDS = 10
# Period after the join of an agent in which its empty machine is still reserved for the pending
# sessions that caused its start.
SETTLING_SECONDS = 30


class MachineStatus(StrEnum):
    REQUESTED = "requested"  # the command is called to start it
    STARTING = "starting"  # the command has started it; its agent has not joined yet
    RUNNING = "running"  # its agent has joined
    DRAINING = "draining"  # it accepts no sessions, and stops when it has none
    STOPPING = "stopping"  # the command that stops it is repeated until it succeeds
    STOPPED = "stopped"
    FAILED = "failed"  # it never joined, and is stopped


class MachineEvent(StrEnum):
    STARTED = "started"
    JOINED = "joined"
    DRAINED = "drained"
    RESUMED = "resumed"
    GIVEN_UP = "given-up"
    EMPTIED = "emptied"
    STOPPED = "stopped"
    FAILED = "failed"


S, E = MachineStatus, MachineEvent

# A pair that is missing here is invalid.
TRANSITIONS: Mapping[tuple[MachineStatus, MachineEvent], MachineStatus] = {
    (S.REQUESTED, E.STARTED): S.STARTING,
    (S.REQUESTED, E.JOINED): S.RUNNING,
    (S.REQUESTED, E.GIVEN_UP): S.STOPPING,
    (S.STARTING, E.JOINED): S.RUNNING,
    (S.STARTING, E.GIVEN_UP): S.STOPPING,
    (S.RUNNING, E.DRAINED): S.DRAINING,
    (S.DRAINING, E.RESUMED): S.RUNNING,
    (S.DRAINING, E.EMPTIED): S.STOPPING,
    (S.STOPPING, E.STOPPED): S.STOPPED,
    (S.STOPPING, E.FAILED): S.FAILED,
}
ENDED = frozenset({S.STOPPED, S.FAILED})
COMING = frozenset({S.REQUESTED, S.STARTING})


def next_status(status: MachineStatus, event: MachineEvent) -> MachineStatus:
    """Return the status after ``event``; raise ``InvalidTransition`` if there is none."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise InvalidTransition(f"a machine that is {status} cannot be {event}") from None


class MachineReason(StrEnum):
    """Why a machine is drained or was given up; or that the last command to stop it has failed."""

    NONE = ""
    START_FAILED = "start-failed"
    NEVER_JOINED = "never-joined"
    STOP_FAILED = "stop-failed"
    STOP_REQUESTED = "stop-requested"  # by an administrator
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class ProvisioningOptions:
    """Limits of the machines of a resource group; no machine is started if ``maximum`` is 0.

    ``machine``: cpu, mem and devices of a machine. ``idle_seconds``: time without sessions after
    which a machine is stopped. ``join_seconds``: time after which a machine that has not joined is
    given up. ``cooldown_seconds``: time after a failed start in which no machine is started.
    """

    machine: ResourceSlots = field(default_factory=ResourceSlots)
    architecture: str = "x86_64"
    maximum: int = 0
    minimum: int = 0
    starts_per_hour: int = 20
    idle_seconds: int = 600
    join_seconds: int = 600
    cooldown_seconds: int = 120


OFF = ProvisioningOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionedMachine:
    """A machine with the fields of the REST API.

    ``reference``: the name that the command has returned. ``joined_at`` and ``agent_id`` are None
    before its agent has joined. ``message``: the error of the command.
    """

    id: str
    created_at: datetime
    resource_group: str
    status: MachineStatus
    status_changed_at: datetime
    slots: ResourceSlots
    reference: str
    agent_id: str | None
    joined_at: datetime | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class MachineState:
    """A machine as input of ``decide``.

    ``idle_since``: when its last session ended, or when it joined; None while it has sessions or
    has not joined. ``agent_status`` is None before the first heartbeat of its agent.
    """

    machine: ProvisionedMachine
    idle_since: datetime | None = None
    agent_status: AgentStatus | None = None

    @property
    def status(self) -> MachineStatus:
        return self.machine.status


class Limit(StrEnum):
    """Why fewer machines are started than the pending sessions need."""

    MAXIMUM = "maximum"
    STARTS_PER_HOUR = "starts-per-hour"
    COOLDOWN = "cooldown"


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision: the number of machines to start, and the events of existing machines."""

    starts: int = 0
    events: tuple[tuple[str, MachineEvent], ...] = ()
    limit: Limit | None = None


def decide(
    options: ProvisioningOptions,
    machines: Sequence[MachineState],
    demand: int,
    recent_starts: int,
    last_failure_at: datetime | None,
    now: datetime,
) -> Decision:
    """Return the next steps for the machines of one resource group.

    ``machines``: the machines that have not ended. ``demand``: the number of further empty machines
    with which pending sessions could start. ``recent_starts``: starts within the last hour.

    A machine that has sessions is never stopped. A machine that the demand needs is not drained.
    """
    events: list[tuple[str, MachineEvent]] = []
    live, draining = [], []
    for one in machines:
        event = _followup(options, one, now)
        if event is not None:
            events.append((one.machine.id, event))
        if event is MachineEvent.GIVEN_UP:
            last_failure_at = now
            continue
        if one.status is S.STOPPING:
            continue
        if one.status is S.DRAINING:
            if event is None and one.machine.reason != MachineReason.STOP_REQUESTED:
                draining.append(one)
        else:
            live.append(one)
    expected = sum(one.status in COMING or _is_settling(one, now) for one in live)
    missing = max(demand - expected, options.minimum - len(live), 0)
    resumed = draining[: min(missing, max(0, options.maximum - len(live)))]
    events += [(one.machine.id, MachineEvent.RESUMED) for one in resumed]
    missing -= len(resumed)
    starts, limit = _allowed(options, missing, len(machines), recent_starts, last_failure_at, now)
    if not demand:
        spare = len(live) + len(resumed) - min(options.minimum, options.maximum)
        idle = sorted(
            (one for one in live if _is_idle(options, one, now)),
            key=lambda one: (one.idle_since, one.machine.id),
        )
        events += [(one.machine.id, MachineEvent.DRAINED) for one in idle[: max(0, spare)]]
    return Decision(starts, tuple(events), limit)


def _followup(
    options: ProvisioningOptions, one: MachineState, now: datetime
) -> MachineEvent | None:
    """Return the event that follows from the state of a machine, regardless of the demand."""
    if one.status in COMING:
        if one.agent_status is AgentStatus.ALIVE:
            return MachineEvent.JOINED
        if now - one.machine.created_at > timedelta(seconds=options.join_seconds):
            return MachineEvent.GIVEN_UP
    if one.status is S.DRAINING and one.idle_since is not None:
        return MachineEvent.EMPTIED
    return None


def _is_settling(one: MachineState, now: datetime) -> bool:
    joined_at = one.machine.joined_at
    return (
        one.status is S.RUNNING
        and one.idle_since is not None
        and joined_at is not None
        and now - joined_at < timedelta(seconds=SETTLING_SECONDS)
    )


def _is_idle(options: ProvisioningOptions, one: MachineState, now: datetime) -> bool:
    return (
        one.status is S.RUNNING
        and one.idle_since is not None
        and now - one.idle_since >= timedelta(seconds=options.idle_seconds)
    )


def _allowed(
    options: ProvisioningOptions,
    missing: int,
    existing: int,
    recent_starts: int,
    last_failure_at: datetime | None,
    now: datetime,
) -> tuple[int, Limit | None]:
    """Return how many of the missing machines may be started now, and the limit that applies.

    A machine that is stopping still exists, so it counts.
    """
    if not missing or not options.maximum:
        return 0, None
    cooldown = timedelta(seconds=options.cooldown_seconds)
    if last_failure_at is not None and now - last_failure_at < cooldown:
        return 0, Limit.COOLDOWN
    below_maximum = max(0, options.maximum - existing)
    this_hour = max(0, options.starts_per_hour - recent_starts)
    starts = min(missing, below_maximum, this_hour, MAX_STARTS)
    if starts in (missing, MAX_STARTS):
        return starts, None
    return starts, Limit.MAXIMUM if below_maximum <= this_hour else Limit.STARTS_PER_HOUR
