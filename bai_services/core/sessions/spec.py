"""The fields of a session request, defined once for all layers.

Add a new field here and in the REST model (``api/sessions/bodies.py``). Its metadata (see
``Traits``) controls how the layers store, show and merge it.
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

    # Part of the request's identity: a second request with the same session name but a different
    # value is a conflict.
    is_identity: bool = True
    # A set: the order of entries and duplicates have no meaning.
    is_set: bool = False
    # May contain secrets of the owner, so other readers of a template do not see the field.
    is_private: bool = False
    # A mapping whose entries are merged with the template's mapping instead of replacing it.
    is_merged: bool = False
    # Allowed in the user options of a spawn through the Hub.
    is_hub_option: bool = True
    # Stored in separate database columns; other fields are stored in the column ``options``.
    has_columns: bool = False


def _field(default: Any, **traits: bool) -> Any:
    """Return a dataclass field with these traits; the default ``{}`` is a new dict per instance."""
    metadata = {_TRAITS: Traits(**traits)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A session request as received from a user; the values are not validated."""

    name: str | None = _field(None, is_identity=False, has_columns=True)
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
    # User name of the owner, and name of the Hub server: only the Hub may set them.
    owner: str | None = _field(None, is_identity=False, is_hub_option=False, has_columns=True)
    hub_server: str | None = _field(None, is_identity=False, is_hub_option=False, has_columns=True)
    # Only for batch sessions.
    startup_command: str | None = _field(
        None, is_private=True, is_hub_option=False, has_columns=True
    )
    starts_at: str | None = _field(None, is_hub_option=False, has_columns=True)
    batch_timeout: str | int | None = _field(None, is_hub_option=False, has_columns=True)
    callback_url: str | None = _field(None, is_private=True, has_columns=True)
    # Ids or names of the owner's sessions that must end successfully before this one starts.
    dependencies: Sequence[str] = _field((), is_set=True, is_hub_option=False, has_columns=True)
    # Ports on which the owner's programs listen.
    preopen_ports: Sequence[int] = _field((), has_columns=True)
    # Return the live session of the same name, even if the request differs.
    reuse: bool = _field(False, is_identity=False, is_hub_option=False, has_columns=True)
    cluster_size: int = _field(1, has_columns=True)
    cluster_mode: str = _field(Mode.SINGLE_NODE, has_columns=True)
    # Agents designated by an administrator. ``agent_selection``: ``strict`` allows only these,
    # ``preferred`` tries these first.
    agent_list: Sequence[str] = _field((), is_set=True, is_hub_option=False)
    agent_selection: str = _field(Designation.STRICT, is_hub_option=False)
    allow_fractional_resource_fragmentation: bool | None = _field(None, is_hub_option=False)

    def options(self) -> dict[str, Any]:
        """Return the value of the column ``options``: set fields without separate columns."""
        return {
            f.name: _plain(getattr(self, f.name))
            for f in fields(self)
            if not traits_of(f).has_columns and self.is_given(f)
        }

    def is_given(self, spec_field: Field[Any]) -> bool:
        """Return whether a field differs from its default; an empty list or map does not."""
        value = getattr(self, spec_field.name)
        if isinstance(value, str | int | float) or value is None:
            return bool(value != default_of(spec_field))
        return bool(value)

    def digest(self, project_id: str, mounts: Sequence[ResolvedMount]) -> str:
        """Return a digest of the request's identity; equivalent notations give the same digest.

        ``project_id`` and ``mounts`` are the resolved project and mounts of the request. Digests
        are stored and must remain stable, so a field that was added later contributes only if it
        differs from its default.
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
        # In the digest, these fields have other keys (see _DIGESTED_UNDER_OTHER_KEYS).
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
    traits: Traits = spec_field.metadata.get(_TRAITS, Traits())
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
PRIVATE_FIELDS = _fields_with("is_private")
MERGED_FIELDS = _fields_with("is_merged")
HUB_OPTIONS = _fields_with("is_hub_option")
DEFAULTS: Mapping[str, Any] = {f.name: default_of(f) for f in fields(SessionSpec)}
