"""All routes of the API: pairs of a pattern below ``/api/v1`` and a handler."""

from __future__ import annotations

from . import audit, dashboard, drain, events, health, mail, metrics
from .accounts import (
    account_deletion,
    auth,
    browser_sign_ins,
    domains,
    external_identities,
    keypairs,
    me,
    one_time_codes,
    password_resets,
    policies,
    projects,
    sign_ups,
    ssh_keys,
    users,
)
from .apps import session_apps
from .apps import shares as app_shares
from .base import APIHandler
from .cluster import (
    agent_joins,
    agents,
    custom_images,
    devices,
    doctor,
    image_prunes,
    image_pulls,
    images,
    presets,
    provisioning,
    registries,
    replays,
    resource_groups,
)
from .folders import files, invitations, storage_hosts, uploads, vfolders
from .imports import imports as folder_imports
from .models import imports as model_imports
from .models import models
from .notifications import notifications, webhooks
from .operations import announcements, component_settings, configuration, maintenances, system
from .pipelines import pipelines
from .pipelines import runs as pipeline_runs
from .pipelines import schedules as pipeline_schedules
from .pipelines import templates as pipeline_templates
from .pipelines import triggers as pipeline_triggers
from .scheduling import counter_audit, overflow_rules, preemptions, reservations
from .serving import chats, endpoints, gateways
from .sessions import (
    idle_checkers,
    launch,
    logs,
    records,
    schedules,
    sessions,
    setups,
    suspensions,
    templates,
)
from .usage import budgets
from .usage import reports as usage_reports

Route = tuple[str, type[APIHandler]]

# The first route that matches a path is used.
ROUTES: list[Route] = [
    *health.ROUTES,
    *counter_audit.ROUTES,
    *drain.ROUTES,
    *metrics.ROUTES,
    *mail.ROUTES,
    *me.ROUTES,
    *dashboard.ROUTES,
    *ssh_keys.ROUTES,
    *browser_sign_ins.ROUTES,
    *one_time_codes.ROUTES,
    *external_identities.ROUTES,
    *auth.ROUTES,
    *password_resets.ROUTES,
    *sign_ups.ROUTES,
    *account_deletion.ROUTES,
    *domains.ROUTES,
    *projects.ROUTES,
    *users.ROUTES,
    *keypairs.ROUTES,
    *policies.ROUTES,
    *audit.ROUTES,
    *announcements.ROUTES,
    *maintenances.ROUTES,
    *reservations.ROUTES,
    *configuration.ROUTES,
    *component_settings.ROUTES,
    *system.ROUTES,
    *vfolders.ROUTES,
    *files.ROUTES,
    *uploads.ROUTES,
    *invitations.ROUTES,
    *storage_hosts.ROUTES,
    *resource_groups.ROUTES,
    *replays.ROUTES,
    *agent_joins.ROUTES,
    *doctor.ROUTES,
    *provisioning.ROUTES,
    *agents.ROUTES,
    *devices.ROUTES,
    *images.ROUTES,
    *image_prunes.ROUTES,
    *image_pulls.ROUTES,
    *custom_images.ROUTES,
    *registries.ROUTES,
    *presets.ROUTES,
    *events.ROUTES,
    *records.ROUTES,
    *launch.ROUTES,
    *idle_checkers.ROUTES,
    *preemptions.ROUTES,
    *suspensions.ROUTES,
    *sessions.ROUTES,
    *logs.ROUTES,
    *session_apps.ROUTES,
    *app_shares.ROUTES,
    *templates.ROUTES,
    *schedules.ROUTES,
    *setups.ROUTES,
    *usage_reports.ROUTES,
    *notifications.ROUTES,
    *webhooks.ROUTES,
    *budgets.ROUTES,
    *overflow_rules.ROUTES,
    *endpoints.ROUTES,
    *gateways.ROUTES,
    *chats.ROUTES,
    *models.ROUTES,
    *model_imports.ROUTES,
    *pipelines.ROUTES,
    *pipeline_runs.ROUTES,
    *pipeline_schedules.ROUTES,
    *pipeline_triggers.ROUTES,
    *pipeline_templates.ROUTES,
    *folder_imports.ROUTES,
]
