"""The fields of a session request, defined once for all layers.

Add a new field here and in the REST model (``api/sessions/bodies.py``). The metadata of the field
(see ``Traits``) controls how the layers store, show and merge it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from ..folders.mounts import MountRequest, ResolvedMount
from ..folders.vfolders import Permission
from ..resources import MEM, ResourceSlots, parse_amount
from ..scheduling.placement_options import Designation, Mode
from .lifecycle import SessionType

# Maximum of ``priority`` and ``job_priority``.
MAX_PRIORITY = 100
_TRAITS = "traits"


@dataclass(frozen=True, slots=True)
class Traits:
    """How the layers treat a field; the defaults fit most new fields."""

    # Help text of the option of ``bai session create``. Empty: the command has no such option.
    help: str
    # Part of the request's identity: a second request with the same session name and a different
    # value is a conflict.
    is_identity: bool = True
    # The field is a set: the order of entries and duplicates do not matter.
    is_set: bool = False
    # May contain secrets of the owner, so the field is hidden from other readers of a template.
    is_private: bool = False
    # A mapping that is merged with the template's mapping instead of replacing it.
    is_merged: bool = False
    # Allowed in the user options of a spawn through the Hub.
    is_hub_option: bool = True
    # Columns of the session's row that depend on the field. None: the field is stored unchanged in
    # the column ``options``. (): the row does not contain it.
    columns: Sequence[str] | None = None
    # Environment variable of the session that contains the value, a string or a number.
    variable: str = ""


def _field(default: Any, *, help: str, **traits: Any) -> Any:
    """Return a dataclass field with these traits; the default ``{}`` is a new dict per instance."""
    metadata = {_TRAITS: Traits(help, **traits)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A session request as received from a user; the values are not validated."""

    name: str | None = _field(
        None,
        # No command option, because the name is an argument of the command.
        help="",
        is_identity=False,
        columns=("name",),
        variable="BAI_SESSION_NAME",
    )
    project: str | None = _field(
        None,
        help="Project of the session. Default: your only project, else the one named 'default'.",
        columns=("project_id", "domain"),
        variable="BAI_PROJECT",
    )
    image: str | None = _field(
        None,
        help="Name or alias of the image. Default: the default image of the project.",
        columns=("image", "architecture"),
    )
    resources: Mapping[str, str] = _field(
        {},
        help="Amount of a resource per kernel, for example cpu=1, mem=1g or cuda.shares=0.25.",
        is_merged=True,
        columns=("requested_slots",),
    )
    minimum_resources: Mapping[str, str] = _field(
        {},
        help="Amount of a resource with which the session can start, for example cpu=1. The "
        "session then grows up to the requested amount while no session waits, and shrinks when "
        "one does. Default: no change of size.",
        is_merged=True,
        columns=("requested_slots",),
    )
    preset: str | None = _field(
        None,
        help="Use the resources of a preset.",
        columns=("requested_slots", "shared_memory_bytes"),
    )
    resource_group: str | None = _field(
        None,
        help="Resource group to run in. Default: the default group, else the first that you "
        "may use.",
        columns=("resource_group",),
        variable="BAI_RESOURCE_GROUP",
    )
    mounts: Sequence[MountRequest] = _field(
        (),
        help="Mount a folder, for example data:/home/work/data:ro; data/raw mounts only that "
        "directory. Default path: /home/work/FOLDER.",
        columns=("mounts",),
    )
    environ: Mapping[str, str] = _field(
        {},
        help="Set an environment variable.",
        is_private=True,
        is_merged=True,
        columns=("environ",),
    )
    secret_environ: Sequence[str] = _field(
        (),
        help="Set a secret environment variable: its value is read from the environment of bai and "
        "never shown again.",
        is_set=True,
        columns=("environ",),
    )
    shared_memory: str | None = _field(
        None,
        help="Size of /dev/shm, for example 256m. Default: the size in the preset, else 64m.",
        columns=("shared_memory_bytes",),
    )
    type: str = _field(
        SessionType.INTERACTIVE,
        help="Type of the session. Default: interactive.",
        is_hub_option=False,
        columns=("type",),
    )
    # The fields startup_command, starts_at and batch_timeout are only for batch sessions.
    startup_command: str | None = _field(
        None,
        help="Command of a batch session, for example 'python train.py'. Implies --type batch.",
        is_private=True,
        is_hub_option=False,
        columns=("startup_command",),
        variable="BAI_STARTUP_COMMAND",
    )
    starts_at: str | None = _field(
        None,
        help="Earliest start of a batch session: a time (2030-01-31T09:00+09:00) or a delay "
        "(10min).",
        is_hub_option=False,
        columns=("starts_at",),
    )
    batch_timeout: str | int | None = _field(
        None,
        help="Maximum run time of a batch session: seconds (90) or a duration (2h, 1h30m).",
        is_hub_option=False,
        columns=("batch_timeout_seconds",),
    )
    # Ids or names; stored in the table ``session_dependencies``.
    dependencies: Sequence[str] = _field(
        (),
        help="Start only after this session of yours has succeeded.",
        is_set=True,
        is_hub_option=False,
        columns=(),
    )
    cluster_size: int = _field(
        1,
        help="Number of kernels (main1, sub1 …), each with the requested resources; they start "
        "together or not at all. Default: 1.",
        columns=("cluster_size",),
    )
    cluster_mode: str = _field(
        Mode.SINGLE_NODE,
        help="Place all kernels on one agent (single-node, the default) or allow several agents "
        "(multi-node).",
        columns=("cluster_mode",),
    )
    reservation: str | None = _field(
        None,
        help="Name or id of an advance reservation of the project. The session starts in its "
        "period, on its agents.",
        # ``options`` contains the id of the reservation.
        columns=("options",),
    )
    agent_list: Sequence[str] = _field(
        (),
        help="Run on this agent (administrators only).",
        is_set=True,
        is_hub_option=False,
    )
    agent_selection: str = _field(
        Designation.STRICT,
        help="With --agent: use no other agent (strict, the default) or try these first "
        "(preferred).",
        is_hub_option=False,
    )
    allow_fractional_resource_fragmentation: bool | None = _field(
        None,
        # No command option: the resource group sets the value, and REST requests may override it.
        help="",
        is_hub_option=False,
    )
    # Ports on which the owner's programs listen.
    preopen_ports: Sequence[int] = _field(
        (),
        help="Port on which your own program will listen; shown as an app.",
        columns=("environ",),
    )
    callback_url: str | None = _field(
        None,
        help="URL that receives a POST request for each change of the session's status.",
        is_private=True,
        columns=("callback_url",),
    )
    priority: int | None = _field(
        None,
        help="Priority, 0 to 100; higher starts first. The keypair policy limits it. Default: 10.",
        columns=("priority",),
    )
    job_priority: int = _field(
        0,
        help="Rank among your own sessions of one priority, 0 to 100. With preemption, a session "
        "may stop one of yours with a lower rank. Default: 0.",
        is_hub_option=False,
        columns=("job_priority",),
    )
    is_preemptible: bool = _field(
        True,
        help="Never stop this session to make room for another session.",
        is_hub_option=False,
        columns=("is_preemptible",),
    )
    reuse: bool = _field(
        False,
        help="Return an existing live session of this name, even if its spec differs.",
        is_identity=False,
        is_hub_option=False,
        columns=(),
    )
    # User name of the owner: only the Hub and administrators may set it.
    owner: str | None = _field(
        None,
        help="Create the session for another user, who owns it (administrators only).",
        is_identity=False,
        is_hub_option=False,
        columns=("owner_id", "hub_user", "access_key"),
    )
    # Name of the Hub server: only the Hub may set it.
    hub_server: str | None = _field(
        None,
        help="",
        is_identity=False,
        is_hub_option=False,
        columns=("hub_server", "started_by"),
    )

    def options(self) -> dict[str, Any]:
        """Return the value of the column ``options``: the fields that differ from their defaults
        and have no separate column.
        """
        return {
            f.name: _plain(getattr(self, f.name))
            for f in fields(self)
            if traits_of(f).columns is None and self.is_given(f)
        }

    def is_given(self, spec_field: Field[Any]) -> bool:
        """Return whether a field differs from its default.

        An empty list or map counts as the default.
        """
        value = getattr(self, spec_field.name)
        if isinstance(value, str | int | float) or value is None:
            return bool(value != default_of(spec_field))
        return bool(value)

    def digest(self, project_id: str, mounts: Sequence[ResolvedMount]) -> str:
        """Return a digest of the request's identity, equal for equivalent notations.

        ``project_id`` and ``mounts`` are the resolved project and mounts of the request. Digests
        are stored and must remain stable, so fields of later versions contribute only if they
        differ from their defaults.
        """
        content: dict[str, Any] = {
            "project": project_id,
            "image": self.image or "",
            "type": self.type,
            "resource_group": self.resource_group or "",
            "preset": self.preset or "",
            "resources": dict(ResourceSlots.parse(self.resources)),
            "shared_memory": parse_amount(MEM, self.shared_memory or "0"),
            "mounts": sorted(
                (m.path, m.vfolder_id, str(m.permission), *filter(None, [m.subpath]))
                for m in mounts
                if not m.is_auto
            ),
            "environ": dict(self.environ),
            "priority": self.priority,
        }
        # These fields have other keys in the digest (see _DIGESTED_UNDER_OTHER_KEYS).
        if self.cluster_size > 1:
            content["cluster"] = [self.cluster_size, self.cluster_mode]
        if self.agent_list:
            content["agents"] = [sorted(self.agent_list), self.agent_selection]
        if (fragments := self.allow_fractional_resource_fragmentation) is not None:
            content["fragments"] = fragments
        for spec_field in fields(self):
            name, traits = spec_field.name, traits_of(spec_field)
            is_handled_above = name in content or name in _DIGESTED_UNDER_OTHER_KEYS
            if is_handled_above or not traits.is_identity or not self.is_given(spec_field):
                continue
            value = getattr(self, name)
            content[name] = sorted(set(value)) if traits.is_set else _digestible(value)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def spec_of(values: Mapping[str, Any]) -> SessionSpec:
    """Return the spec from the fields of a request, with JSON types validated by the REST model.

    Other fields are ignored.
    """
    given: dict[str, Any] = {name: value for name, value in values.items() if name in FIELDS}
    for name in ("resources", "minimum_resources"):
        slots = given.get(name) or {}
        given[name] = {slot: str(amount) for slot, amount in slots.items()}
    given["mounts"] = tuple(_mount(mount) for mount in given.get("mounts") or ())
    frozen: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
    return SessionSpec(**frozen)


def _mount(mount: Mapping[str, Any]) -> MountRequest:
    permission = mount.get("permission")
    return MountRequest(
        mount["vfolder"],
        mount.get("path", ""),
        permission and Permission(permission),
        mount.get("subpath", ""),
    )


_DIGESTED_UNDER_OTHER_KEYS = frozenset(
    {
        "cluster_size",
        "cluster_mode",
        "agent_list",
        "agent_selection",
        "allow_fractional_resource_fragmentation",
    }
)


def traits_of(spec_field: Field[Any]) -> Traits:
    """Return the traits of a field of ``SessionSpec`` or of a subclass."""
    traits: Traits = spec_field.metadata.get(_TRAITS, Traits(help=""))
    return traits


def default_of(spec_field: Field[Any]) -> Any:
    if spec_field.default_factory is MISSING:
        return spec_field.default
    return spec_field.default_factory()


def _plain(value: Any) -> Any:
    """Return a value with JSON types: a dict for a mapping and a list for a sequence."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return value


def _digestible(value: Any) -> Any:
    plain = _plain(value)
    return plain if isinstance(plain, list | dict) else str(plain)


def _fields_with(trait: str) -> frozenset[str]:
    return frozenset(f.name for f in fields(SessionSpec) if getattr(traits_of(f), trait))


FIELDS = frozenset(f.name for f in fields(SessionSpec))
# Fields that are stored in the column ``options``.
STORED_OPTIONS = frozenset(f.name for f in fields(SessionSpec) if traits_of(f).columns is None)
PRIVATE_FIELDS = _fields_with("is_private")
MERGED_FIELDS = _fields_with("is_merged")
HUB_OPTIONS = _fields_with("is_hub_option")
DEFAULTS: Mapping[str, Any] = {f.name: default_of(f) for f in fields(SessionSpec)}
# Map from an environment variable of a session to the field that sets its value.
VARIABLES: Mapping[str, str] = {
    traits_of(f).variable: f.name for f in fields(SessionSpec) if traits_of(f).variable
}
