"""Facts about the installation, for administrators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package; ``licence`` is empty if the package does not state it."""

    name: str
    version: str
    licence: str


@dataclass(frozen=True, slots=True)
class SystemInfo:
    """Versions, health, database, queue and packages, without secrets.

    ``sessions`` and ``agents`` are counts by status. ``packages`` are Python packages, ``bundled``
    are JavaScript packages in the web UI and the JupyterLab extension.
    """

    version: str
    python: str
    at: datetime
    health: str
    has_database: bool
    has_hub: bool
    is_standby: bool
    database: str
    database_version: str
    database_bytes: int
    revision: str
    sessions: Mapping[str, int]
    agents: Mapping[str, int]
    users: int
    audit_entries: int
    packages: Sequence[Package]
    bundled: Sequence[Package]
