"""The fields of a request for a session, listed once for every layer.

A new field is added here and in its REST model (``api/sessions/bodies.py``). What else the layers
do with it follows from its metadata: see ``Traits``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from ..folders.mounts import MountRequest, ResolvedMount
from ..resources import MEM, ResourceSlots, parse_amount
from ..scheduling.placement import Designation, Mode
from .lifecycle import SessionType

_TRAITS = "traits"


@dataclass(frozen=True, slots=True)
class Traits:
    """How the layers treat a field; the defaults fit most new fields."""

    # Identifies the request: another value under the same session name is another request.
    is_content: bool = True
    # The order of its entries, and repeated entries, mean nothing.
    is_set: bool = False
    # May hold secrets of the owner: other readers of a template do not see it.
    is_private: bool = False
    # A request that names a template replaces single entries, not the whole mapping.
    is_merged: bool = False
    # The options of a start through the Hub may hold it.
    is_hub_option: bool = True
    # Has columns of its own in the database; other fields are stored in the column ``options``.
    has_columns: bool = False


def _field(default: Any, **traits: bool) -> Any:
    """Return a dataclass field; a mapping as default is copied for each instance."""
    metadata = {_TRAITS: Traits(**traits)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a user requests: the body of a create, as received; values are not validated yet."""

    name: str | None = _field(None, is_content=False, has_columns=True)
    project: str | None = _field(None, has_columns=True)
    image: str | None = _field(None, has_columns=True)
    type: str = _field(SessionType.INTERACTIVE, is_hub_option=False, has_columns=True)
    resource_group: str | None = _field(None, has_columns=True)
    preset: str | None = _field(None, has_columns=True)
    resources: Mapping[str, str] = _field({}, is_merged=True, has_columns=True)
    shared_memory: str | None = _field(None, has_columns=True)
    mounts: Sequence[MountRequest] = _field((), has_columns=True)
    environ: Mapping[str, str] = _field({}, is_private=True, is_merged=True, has_columns=True)
    secret_environ: Sequence[str] = _field((), is_set=True, has_columns=True)
    priority: int | None = _field(None, has_columns=True)
    # Username of the owner, and the name of the Hub server: only the Hub may give them.
    owner: str | None = _field(None, is_content=False, is_hub_option=False, has_columns=True)
    hub_server: str | None = _field(None, is_content=False, is_hub_option=False, has_columns=True)
    # Only for batch sessions.
    startup_command: str | None = _field(
        None, is_private=True, is_hub_option=False, has_columns=True
    )
    starts_at: str | None = _field(None, is_hub_option=False, has_columns=True)
    batch_timeout: str | int | None = _field(None, is_hub_option=False, has_columns=True)
    callback_url: str | None = _field(None, is_private=True, has_columns=True)
    # Ids or names of sessions of the same owner that must end with success first.
    dependencies: Sequence[str] = _field((), is_set=True, is_hub_option=False, has_columns=True)
    # Ports on which a program of the owner will listen.
    preopen_ports: Sequence[int] = _field((), has_columns=True)
    # Accept the live session of that name, whatever its content.
    reuse: bool = _field(False, is_content=False, is_hub_option=False, has_columns=True)
    cluster_size: int = _field(1, has_columns=True)
    cluster_mode: str = _field(Mode.SINGLE_NODE, has_columns=True)
    # Agents designated by an administrator. Strict: only these; preferred: these first.
    agent_list: Sequence[str] = _field((), is_set=True, is_hub_option=False)
    agent_selection: str = _field(Designation.STRICT, is_hub_option=False)
    allow_fractional_resource_fragmentation: bool | None = _field(None, is_hub_option=False)

    def options(self) -> dict[str, Any]:
        """Return the given fields that have no columns of their own, as they are stored."""
        return {
            f.name: _plain(getattr(self, f.name))
            for f in fields(self)
            if not traits_of(f).has_columns and self.is_given(f)
        }

    def is_given(self, one: Field[Any]) -> bool:
        """Return whether a field differs from its default; an empty list or map does not."""
        value = getattr(self, one.name)
        if isinstance(value, str | int | float) or value is None:
            return bool(value != default_of(one))
        return bool(value)

    def digest(self, project_id: str, mounts: Sequence[ResolvedMount]) -> str:
        """Return the digest of the content: equal for equal content, whatever its notation.

        ``project_id`` and ``mounts`` are the resolved project and mounts of the request. Digests
        are stored, so those of existing requests must never change: a field that was added later
        counts only where it is given.
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
        # Stored under other names, or together.
        if self.cluster_size > 1:
            content["cluster"] = [self.cluster_size, self.cluster_mode]
        if self.agent_list:
            content["agents"] = [sorted(self.agent_list), self.agent_selection]
        if (fragments := self.allow_fractional_resource_fragmentation) is not None:
            content["fragments"] = fragments
        for one in fields(self):
            traits = traits_of(one)
            is_apart = one.name in content or one.name in _DIGESTED_TOGETHER
            if is_apart or not traits.is_content or not self.is_given(one):
                continue
            value = getattr(self, one.name)
            content[one.name] = sorted(set(value)) if traits.is_set else _digestible(value)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


_DIGESTED_TOGETHER = frozenset(
    {
        "cluster_size",
        "cluster_mode",
        "agent_list",
        "agent_selection",
        "allow_fractional_resource_fragmentation",
    }
)


def traits_of(one: Field[Any]) -> Traits:
    """Return the traits of a field of ``SessionSpec`` or of a subclass."""
    traits: Traits = one.metadata.get(_TRAITS, Traits())
    return traits


def default_of(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


def _plain(value: Any) -> Any:
    """Return a value in its JSON form."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return value


def _digestible(value: Any) -> Any:
    plain = _plain(value)
    return plain if isinstance(plain, list | dict) else str(plain)


def _named(trait: str) -> frozenset[str]:
    return frozenset(f.name for f in fields(SessionSpec) if getattr(traits_of(f), trait))


FIELDS = frozenset(f.name for f in fields(SessionSpec))
PRIVATE_FIELDS = _named("is_private")
MERGED_FIELDS = _named("is_merged")
HUB_OPTIONS = _named("is_hub_option")
DEFAULTS: Mapping[str, Any] = {f.name: default_of(f) for f in fields(SessionSpec)}
