"""A session request in its stored form."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..resources import ResourceSlots


@dataclass(frozen=True, slots=True)
class ResolvedSpec:
    """A ``SessionSpec`` with resolved names, parsed values and defaults.

    Each field is a column of the session's row. For each field of ``SessionSpec``,
    ``Traits.columns`` lists the columns that depend on it. ``options`` contains the given fields
    with ``Traits.columns`` None.
    """

    id: str
    name: str
    type: str
    owner_id: str
    access_key: str
    domain: str
    project_id: str
    resource_group: str
    image: str
    architecture: str
    priority: int
    requested_slots: ResourceSlots
    shared_memory_bytes: int
    mounts: list[dict[str, Any]]
    environ: dict[str, str]
    options: dict[str, Any]
    request_hash: str
    notices: list[str]
    cluster_mode: str
    hub_user: str
    hub_server: str
    started_by: str
    startup_command: str | None
    starts_at: datetime | None
    batch_timeout_seconds: int | None
    callback_url: str | None
    job_priority: int
    is_preemptible: bool
