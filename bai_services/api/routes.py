"""Every route of the API: pattern below ``/api/v1`` and its handler."""

from __future__ import annotations

from . import (
    agents,
    app_shares,
    audit,
    auth,
    counter_audit,
    devices,
    domains,
    events,
    files,
    health,
    images,
    kernels,
    keypairs,
    launch,
    logs,
    me,
    metrics,
    policies,
    presets,
    projects,
    resource_groups,
    sessions,
    ssh_keys,
    storage,
    templates,
    uploads,
    users,
    vfolders,
)
from .base import APIHandler

Route = tuple[str, type[APIHandler]]

# Each module of a resource has its own ROUTES; one line each.
ROUTES: list[Route] = [
    *health.ROUTES,
    *counter_audit.ROUTES,
    *metrics.ROUTES,
    *me.ROUTES,
    *ssh_keys.ROUTES,
    *auth.ROUTES,
    *domains.ROUTES,
    *projects.ROUTES,
    *users.ROUTES,
    *keypairs.ROUTES,
    *policies.ROUTES,
    *audit.ROUTES,
    *vfolders.ROUTES,
    *files.ROUTES,
    *uploads.ROUTES,
    *storage.ROUTES,
    *resource_groups.ROUTES,
    *agents.ROUTES,
    *devices.ROUTES,
    *images.ROUTES,
    *presets.ROUTES,
    *events.ROUTES,
    *kernels.ROUTES,
    *launch.ROUTES,
    *sessions.ROUTES,
    *logs.ROUTES,
    *app_shares.ROUTES,
    *templates.ROUTES,
]
