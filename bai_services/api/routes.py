"""All routes of the API: pairs of a pattern below ``/api/v1`` and a handler."""

from __future__ import annotations

from . import audit, dashboard, drain, events, health, metrics
from .accounts import auth, domains, keypairs, me, policies, projects, ssh_keys, users
from .apps import session_apps
from .apps import shares as app_shares
from .base import APIHandler
from .cluster import agents, devices, images, presets, replays, resource_groups
from .folders import files, invitations, storage_hosts, uploads, vfolders
from .operations import announcements, maintenances, system
from .scheduling import counter_audit
from .sessions import launch, logs, records, sessions, templates

Route = tuple[str, type[APIHandler]]

# The first route that matches a path is used.
ROUTES: list[Route] = [
    *health.ROUTES,
    *counter_audit.ROUTES,
    *drain.ROUTES,
    *metrics.ROUTES,
    *me.ROUTES,
    *dashboard.ROUTES,
    *ssh_keys.ROUTES,
    *auth.ROUTES,
    *domains.ROUTES,
    *projects.ROUTES,
    *users.ROUTES,
    *keypairs.ROUTES,
    *policies.ROUTES,
    *audit.ROUTES,
    *announcements.ROUTES,
    *maintenances.ROUTES,
    *system.ROUTES,
    *vfolders.ROUTES,
    *files.ROUTES,
    *uploads.ROUTES,
    *invitations.ROUTES,
    *storage_hosts.ROUTES,
    *resource_groups.ROUTES,
    *replays.ROUTES,
    *agents.ROUTES,
    *devices.ROUTES,
    *images.ROUTES,
    *presets.ROUTES,
    *events.ROUTES,
    *records.ROUTES,
    *launch.ROUTES,
    *sessions.ROUTES,
    *logs.ROUTES,
    *session_apps.ROUTES,
    *app_shares.ROUTES,
    *templates.ROUTES,
]
