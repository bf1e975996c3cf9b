"""The ``scheduler_opts`` of a resource group: placement, backfill, fair share and limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from ..durations import parse_duration
from ..errors import InvalidRequest
from ..resources import ResourceSlots
from ..scheduling.advance_reservations import HeldAgents
from ..scheduling.caps import Scope, ScopeKind
from ..scheduling.maintenance import MaintenanceWindow
from ..scheduling.placement import Policy, Strategy
from ..scheduling.preemption.options import (
    MAX_GRACE_SECONDS,
    OFF,
    PreemptionMode,
    PreemptionOptions,
    VictimOrder,
    VictimScope,
)
from ..scheduling.queue import Backfill, FairShare, GroupState, Order
from ..sessions.lost_agents import (
    MAX_REQUEUE_SECONDS,
    MAX_WAIT_SECONDS,
    MIN_REQUEUE_SECONDS,
    MIN_WAIT_SECONDS,
    LostAgentOptions,
)
from ..sessions.spec import MAX_PRIORITY
from ..user_input import shown
from .device_sharing import Level
from .provisioning import (
    MAX_MACHINES,
    MAX_SECONDS,
    MIN_JOIN_SECONDS,
    ProvisioningOptions,
)
from .provisioning import (
    OFF as NO_MACHINES,
)

MAX_DAYS = 366
MAX_WEIGHT = 1_000_000.0
FIELD = "scheduler_opts"
# Field of an update that changes only the given options; null resets an option to its default.
CHANGES_FIELD = "scheduler_opts_changes"
MINIMUM = "minimum_enforcement"
PREEMPTION = "preemption"
LOST_AGENTS = "lost_agents"
PROVISIONING = "provisioning"
PROXY_ADDRESS = "proxy_address"
# Number of nested levels that a change merges into the stored options, as in
# ``fair_share.weights.user.ID``.
_MERGED_LEVELS = 4


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The parsed ``scheduler_opts`` of a resource group."""

    placement: Policy = Policy.PRICED
    backfill: Backfill = Backfill.RESERVING
    strategy: Strategy = Strategy.EVENLY
    # Whether a share may be split into uneven parts. If true, a share of at most one device that
    # fits on no single device may also be split. A request can override this option.
    allow_fractional_resource_fragmentation: bool = False
    # Seconds after which a pending session is cancelled; 0: never.
    pending_timeout: int = 0
    fair_share: FairShare = field(default_factory=FairShare)
    # Minimum enforcement level; shares with a lower level are not allocated.
    minimum_enforcement: Level = Level.NONE
    preemption: PreemptionOptions = OFF
    lost_agents: LostAgentOptions = LostAgentOptions()
    provisioning: ProvisioningOptions = NO_MACHINES
    # URL of the reverse proxy through which users reach the sessions of the group, without a path;
    # "": the address of the Hub.
    proxy_address: str = ""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> GroupOptions:
        """Parse options in their REST and database format.

        Raises
        ------
        InvalidRequest
            If an option is unknown or has an invalid value. The message states the valid values.
        """
        _check_known("option of a resource group", options, _PARSERS)
        return cls(**{name: _PARSERS[name](name, value) for name, value in options.items()})

    def state(
        self,
        name: str,
        order: str,
        is_active: bool,
        maintenance: tuple[MaintenanceWindow, ...] = (),
        held: tuple[HeldAgents, ...] = (),
        machines_since: datetime | None = None,
    ) -> GroupState:
        """Return the group as input of a scheduling pass."""
        return GroupState(
            name=name,
            is_active=is_active,
            order=Order(order),
            placement=self.placement,
            backfill=self.backfill,
            fair_share=self.fair_share,
            maintenance=maintenance,
            held=held,
            preemption=self.preemption,
            machines_since=machines_since,
        )


def merged_options(
    stored: Mapping[str, Any], changes: Mapping[str, Any], depth: int = _MERGED_LEVELS
) -> dict[str, Any]:
    """Return ``stored`` with ``changes``: None removes an option, mappings are merged."""
    merged = {name: value for name, value in stored.items() if changes.get(name, ...) is not None}
    for name, value in changes.items():
        if value is None:
            continue
        if isinstance(value, Mapping) and depth > 1:
            known = merged.get(name)
            value = merged_options(known if isinstance(known, Mapping) else {}, value, depth - 1)
        merged[name] = value
    return merged


def check_changes(changes: Mapping[str, Any]) -> None:
    """Validate changes of options, in which None removes an option.

    Raises
    ------
    InvalidRequest
        If an option is unknown or has an invalid value.
    """
    _check_known("option of a resource group", changes, _PARSERS)
    check_options(merged_options({}, changes))


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate options and return them in their stored form, with durations in seconds.

    Raises
    ------
    InvalidRequest
        If an option is unknown or has an invalid value.
    """
    parsed = GroupOptions.of(options)
    stored = dict(options)
    if "pending_timeout" in stored:
        stored["pending_timeout"] = parsed.pending_timeout
    if PREEMPTION in stored:
        preemption = stored[PREEMPTION] = dict(stored[PREEMPTION])
        for name in _PREEMPTION_SECONDS & preemption.keys():
            preemption[name] = getattr(parsed.preemption, f"{name}_seconds")
    if LOST_AGENTS in stored:
        given = stored[LOST_AGENTS]
        stored[LOST_AGENTS] = {
            name: getattr(parsed.lost_agents, f"{name}_seconds") for name in given
        }
    if PROVISIONING in stored:
        given = stored[PROVISIONING] = dict(stored[PROVISIONING])
        for name in _PROVISIONING_SECONDS & given.keys():
            given[name] = getattr(parsed.provisioning, f"{name}_seconds")
    if PROXY_ADDRESS in stored:
        stored[PROXY_ADDRESS] = parsed.proxy_address
    return stored


def _one_of(choices: type[StrEnum]) -> Callable[[str, Any], StrEnum]:
    def parse(name: str, value: Any) -> StrEnum:
        if not isinstance(value, str) or value not in set(choices):
            raise InvalidRequest(
                f"{shown(value)!r} is not a valid {name}; use one of: {', '.join(choices)}",
                field=f"{FIELD}.{name}",
            )
        return choices(value)

    return parse


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false", field=f"{FIELD}.{name}")
    return value


def _seconds(name: str, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidRequest(f"{name} must be a duration such as 2h", field=f"{FIELD}.{name}")
    return parse_duration(value, f"{FIELD}.{name}")


def _preemption(name: str, value: Any) -> PreemptionOptions:
    given = _map(name, value)
    _check_known(f"field of {name}", given, _PREEMPTION)
    values = {part: _PREEMPTION[part](f"{name}.{part}", each) for part, each in given.items()}
    for part in _PREEMPTION_SECONDS & values.keys():
        values[f"{part}_seconds"] = values.pop(part)
    return PreemptionOptions(**values)


def _grace(name: str, value: Any) -> int:
    seconds = _seconds(name, value)
    if seconds > MAX_GRACE_SECONDS:
        raise InvalidRequest(
            f"{name} must be at most {MAX_GRACE_SECONDS} s", field=f"{FIELD}.{name}"
        )
    return seconds


def _lost_agents(name: str, value: Any) -> LostAgentOptions:
    given = _map(name, value)
    _check_known(f"field of {name}", given, _LOST_AGENTS)
    values = {
        f"{part}_seconds": _LOST_AGENTS[part](f"{name}.{part}", each)
        for part, each in given.items()
    }
    return LostAgentOptions(**values)


def _provisioning(name: str, value: Any) -> ProvisioningOptions:
    given = _map(name, value)
    _check_known(f"field of {name}", given, _PROVISIONING)
    values = {part: _PROVISIONING[part](f"{name}.{part}", each) for part, each in given.items()}
    for part in _PROVISIONING_SECONDS & values.keys():
        values[f"{part}_seconds"] = values.pop(part)
    options = ProvisioningOptions(**values)
    if options.minimum > options.maximum:
        raise InvalidRequest(
            f"{name}.minimum must be at most {name}.maximum", field=f"{FIELD}.{name}.minimum"
        )
    if options.maximum and not options.machine:
        raise InvalidRequest(
            f"{name}.machine is missing: the slots of one machine", field=f"{FIELD}.{name}.machine"
        )
    return options


def _machine(name: str, value: Any) -> ResourceSlots:
    try:
        return ResourceSlots.parse(_map(name, value))
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"{name}: {error}", field=f"{FIELD}.{name}") from None


def _architecture(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _ARCHITECTURE.fullmatch(value):
        raise InvalidRequest(f"{name} must be a name such as x86_64", field=f"{FIELD}.{name}")
    return value


def _address(name: str, value: Any) -> str:
    """Return the URL of a proxy without a trailing slash; "" for an empty one."""
    problem = InvalidRequest(
        f"{name} must be a URL such as https://seoul.example.org, without a path",
        field=f"{FIELD}.{name}",
    )
    if not isinstance(value, str) or not _URL.fullmatch(value):
        raise problem
    try:
        parts = urlsplit(value)
        _ = parts.port  # raises ValueError
    except ValueError:
        raise problem from None
    return value.rstrip("/").lower()


def _count(name: str, value: Any) -> int:
    return int(_number(name, value, 0, MAX_MACHINES))


def _between(minimum: int, maximum: int, *, may_be_zero: bool = False) -> Callable[[str, Any], int]:
    def parse(name: str, value: Any) -> int:
        seconds = _seconds(name, value)
        if not minimum <= seconds <= maximum and not (may_be_zero and seconds == 0):
            zero = ", or 0" if may_be_zero else ""
            raise InvalidRequest(
                f"{name} must be {minimum} s to {maximum} s{zero}", field=f"{FIELD}.{name}"
            )
        return seconds

    return parse


def _priority(name: str, value: Any) -> int:
    return int(_number(name, value, 0, MAX_PRIORITY))


def _fair_share(name: str, value: Any) -> FairShare:
    spec = _map(name, value)
    _check_known(f"field of {name}", spec, _FAIR_SHARE)
    values: dict[str, Any] = {}
    for part, limits in _FAIR_SHARE_NUMBERS.items():
        if part in spec:
            values[part] = _number(f"{name}.{part}", spec[part], *limits)
    if "lookback_days" in values:
        values["lookback_days"] = int(values["lookback_days"])
    if "resource_weights" in spec:
        label = f"{name}.resource_weights"
        values["resource_weights"] = _weights(label, spec["resource_weights"], 0.0)
    if "weights" in spec:
        values["weights"] = _scope_weights(f"{name}.weights", spec["weights"])
    return FairShare(**values)


def _scope_weights(name: str, value: Any) -> dict[Scope, float]:
    """Parse ``{kind of scope: {id: weight}}``."""
    by_kind = _map(name, value)
    _check_known(f"kind in {name}", by_kind, _WEIGHTED_KINDS)
    return {
        Scope(kind, key): weight
        for kind, weights in by_kind.items()
        for key, weight in _weights(f"{name}.{kind}", weights, _MIN_WEIGHT).items()
    }


def _weights(name: str, value: Any, minimum: float) -> dict[str, float]:
    return {key: _number(f"{name}.{key}", n, minimum) for key, n in _map(name, value).items()}


def _map(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{name} must be a map", field=f"{FIELD}.{name}")
    return value


def _number(name: str, value: Any, minimum: float, maximum: float = MAX_WEIGHT) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not minimum <= value <= maximum:
        raise InvalidRequest(
            f"{name} must be a number from {minimum:g} to {maximum:g}, not {shown(value)}",
            field=f"{FIELD}.{name}",
        )
    return float(value)


def _check_known(
    what: str, given: Mapping[str, Any], known: Mapping[str, Any] | Sequence[str]
) -> None:
    """Check that ``given`` has only known keys; ``what`` describes a key in the error message."""
    if unknown := sorted(set(given) - set(known)):
        raise InvalidRequest(
            f"{', '.join(map(repr, unknown))[:200]}: there is no such {what}; use one of: "
            f"{', '.join(known)}",
            field=FIELD,
        )


_MIN_WEIGHT = 0.001
_WEIGHTED_KINDS = (ScopeKind.DOMAIN, ScopeKind.PROJECT, ScopeKind.USER)
_FAIR_SHARE_NUMBERS = {
    "half_life_days": (0.01, MAX_DAYS),
    "lookback_days": (1, MAX_DAYS),
    "default_weight": (_MIN_WEIGHT, MAX_WEIGHT),
}
_FAIR_SHARE = (*_FAIR_SHARE_NUMBERS, "weights", "resource_weights")
_PREEMPTION: Mapping[str, Callable[[str, Any], Any]] = {
    "enabled": _flag,
    "preemptible_priority": _priority,
    "victim_scope": _one_of(VictimScope),
    "order": _one_of(VictimOrder),
    "min_runtime": _seconds,
    "mode": _one_of(PreemptionMode),
    "over_fair_share": _flag,
    "grace": _grace,
}
_PREEMPTION_SECONDS = frozenset({"min_runtime", "grace"})
_LOST_AGENTS: Mapping[str, Callable[[str, Any], int]] = {
    "requeue_after": _between(MIN_REQUEUE_SECONDS, MAX_REQUEUE_SECONDS, may_be_zero=True),
    "wait": _between(MIN_WAIT_SECONDS, MAX_WAIT_SECONDS),
}
_PROVISIONING: Mapping[str, Callable[[str, Any], Any]] = {
    "machine": _machine,
    "architecture": _architecture,
    "maximum": _count,
    "minimum": _count,
    "starts_per_hour": _count,
    "idle": _between(0, MAX_SECONDS),
    "join": _between(MIN_JOIN_SECONDS, MAX_SECONDS),
    "cooldown": _between(0, MAX_SECONDS),
}
_PROVISIONING_SECONDS = frozenset({"idle", "join", "cooldown"})
_ARCHITECTURE = re.compile(r"[a-zA-Z0-9_]{1,32}")
# A URL of a host, without user, path, query and fragment; or nothing.
_URL = re.compile(
    r"(?:https?://(?:[A-Za-z0-9.-]{1,230}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?/?)?"
)
_PARSERS: Mapping[str, Callable[[str, Any], Any]] = {
    "placement": _one_of(Policy),
    "backfill": _one_of(Backfill),
    "strategy": _one_of(Strategy),
    "allow_fractional_resource_fragmentation": _flag,
    "pending_timeout": _seconds,
    "fair_share": _fair_share,
    MINIMUM: _one_of(Level),
    PREEMPTION: _preemption,
    LOST_AGENTS: _lost_agents,
    PROVISIONING: _provisioning,
    PROXY_ADDRESS: _address,
}
