"""Settings of a revision: program and session of its replicas, and rules of its rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import InvalidRequest
from ..user_input import shown
from .definition import (
    MAX_COMMAND_BYTES,
    MAX_PORT,
    MAX_START_SECONDS,
    RESERVED_PORTS,
    HealthCheck,
    ModelDefinition,
    is_valid_path,
    relative_path,
)
from .gateway_records import Protocol
from .rollout import RolloutRules, Strategy
from .variants import VARIANTS

# Mount path of the model folder in a replica.
MODEL_MOUNT = "/home/work/model"
MAX_REPLICAS = 100
# Fields of a session request that a revision may set.
REQUEST_FIELDS = frozenset(
    {
        "image",
        "resources",
        "preset",
        "resource_group",
        "mounts",
        "environ",
        "shared_memory",
        "priority",
        "cluster_size",
        "cluster_mode",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionSettings:
    """Settings of a revision. ``model_path``: path of the model in the folder, "" for the folder
    itself. ``request``: other fields of the replicas' sessions, as in ``POST /sessions``.
    """

    variant: str
    command: str
    port: int
    health: HealthCheck
    protocol: Protocol = Protocol.HTTP
    model_folder: str = ""
    model_path: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    rollout: RolloutRules = RolloutRules()

    @property
    def model_variable(self) -> str:
        """The path of the model in a replica; "" if there is no model folder."""
        if not self.model_folder:
            return ""
        return f"{MODEL_MOUNT}/{self.model_path}".rstrip("/")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RevisionSettings:
        """Return the settings from the values of ``as_json``."""
        return cls(
            **{
                **values,
                "health": HealthCheck(**values["health"]),
                # Revisions from versions without gRPC have no protocol.
                "protocol": Protocol(values.get("protocol", Protocol.HTTP)),
                "rollout": RolloutRules(
                    **{**values["rollout"], "strategy": Strategy(values["rollout"]["strategy"])}
                ),
            }
        )


def resolve_settings(
    given: Mapping[str, Any], definition: ModelDefinition | None = None
) -> RevisionSettings:
    """Complete the settings of a new revision from its definition and its variant.

    ``given`` has fields of ``RevisionSettings``; ``health`` and ``rollout`` may be incomplete. A
    given field takes precedence over the definition, and the definition over the variant.

    Raises
    ------
    InvalidRequest
        If a setting is missing or not valid.
    """
    variant = VARIANTS.get(str(given.get("variant") or "custom"))
    if variant is None:
        raise InvalidRequest(
            f"{shown(given['variant'])!r} is not a runtime variant: {', '.join(VARIANTS)}",
            field="variant",
        )
    if definition is not None and not variant.uses_definition:
        raise InvalidRequest(
            f"the runtime variant {variant.name} uses no model definition; use custom",
            field="definition",
        )
    found = definition or ModelDefinition()
    command = given.get("command") or found.command or variant.command
    protocol = _protocol(given.get("protocol") or found.protocol or Protocol.HTTP)
    path = "/" if protocol is Protocol.GRPC else variant.health_path
    base = found.health_check or HealthCheck(path=path, start_seconds=float(variant.start_seconds))
    settings = RevisionSettings(
        variant=variant.name,
        command=command,
        port=int(given.get("port") or found.port or variant.port),
        health=HealthCheck(**{**asdict(base), **(given.get("health") or {})}),
        protocol=protocol,
        model_folder=given.get("model_folder") or "",
        model_path=relative_path(given.get("model_path") or found.model_path),
        request=given.get("request") or {},
        rollout=_rollout(given.get("rollout") or {}),
    )
    _check(settings)
    return settings


def with_defaults(request: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with the defaults of missing fields; maps are merged."""
    joined = dict(request)
    for name, value in defaults.items():
        given = request.get(name)
        joined[name] = {**value, **(given or {})} if isinstance(value, Mapping) else given or value
    return joined


def _protocol(given: str) -> Protocol:
    if given not in set(Protocol):
        raise InvalidRequest(
            f"{shown(given)!r} is not a protocol: {', '.join(Protocol)}", field="protocol"
        )
    return Protocol(given)


def _rollout(given: Mapping[str, Any]) -> RolloutRules:
    values = dict(given)
    strategy = values.pop("strategy", Strategy.ROLLING)
    if strategy not in set(Strategy):
        raise InvalidRequest(
            f"{shown(strategy)!r} is not a strategy: {', '.join(Strategy)}", field="strategy"
        )
    return RolloutRules(strategy=Strategy(strategy), **values)


def _check(settings: RevisionSettings) -> None:
    rules, health = settings.rollout, settings.health
    if not settings.command.strip():
        raise InvalidRequest(
            f"the runtime variant {settings.variant} needs a command, such as "
            "'python3 server.py --port $BAI_SERVICE_PORT'",
            field="command",
        )
    if len(settings.command.encode(errors="replace")) > MAX_COMMAND_BYTES or (
        "\0" in settings.command
    ):
        raise InvalidRequest(
            f"the command contains a NUL or has more than {MAX_COMMAND_BYTES} bytes",
            field="command",
        )
    if not 2 <= settings.port <= MAX_PORT or settings.port in RESERVED_PORTS:
        raise InvalidRequest(f"the port {settings.port} cannot be used", field="port")
    if not is_valid_path(health.path):
        raise InvalidRequest(
            "the path of the health check must begin with / and have no spaces", field="health"
        )
    if not 1 <= health.start_seconds <= MAX_START_SECONDS:
        raise InvalidRequest("start_seconds must be 1 second to 1 day", field="health")
    if unknown := sorted(settings.request.keys() - REQUEST_FIELDS):
        raise InvalidRequest(
            f"{', '.join(unknown)}: replicas cannot have these fields of a session",
            field=unknown[0],
        )
    if rules.strategy is Strategy.ROLLING and rules.max_surge + rules.max_unavailable < 1:
        raise InvalidRequest(
            "max_surge and max_unavailable cannot both be 0: no replica could be replaced",
            field="max_surge",
        )
