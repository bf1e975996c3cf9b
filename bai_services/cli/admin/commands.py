"""`bai admin`: a command group for each kind of entity, and other administrative commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from ..command import command_group
from ..notifications.webhooks import webhook
from ..operations.diagnostics import diagnostics
from ..usage.reports import admin_endpoint_usage, admin_usage, price
from .agents import drain, undrain
from .audit import audit
from .cluster import cluster, invitations, invite, uninvite
from .config import config
from .counters import audit_counters
from .entities import ENTITIES, PROVISIONED_MACHINE
from .entity_commands import entity_group
from .idle_checkers import IDLE_CHECKER_COMMANDS
from .image_prunes import image_prune
from .image_pulls import image_pull
from .image_registries import REGISTRY_COMMANDS
from .invitations import invitation
from .mail import mail
from .members import members
from .preemptions import preemptions
from .replay import replay
from .replay_scaling import replay_scaling_command
from .resource_groups import RESOURCE_GROUP_COMMANDS
from .try_policy import try_policy
from .user_purge import purge_users
from .users import USER_COMMANDS

# Commands of the groups of some entities, in addition to those of every entity.
_ENTITY_COMMANDS: Mapping[str, Sequence[click.Command]] = {
    "agent": (invite, invitations, uninvite, drain, undrain),
    "group": (*RESOURCE_GROUP_COMMANDS, preemptions, try_policy),
    "idle-checker": IDLE_CHECKER_COMMANDS,
    "project": (members,),
    "registry": REGISTRY_COMMANDS,
    "user": (*USER_COMMANDS, purge_users),
}
_OTHER_COMMANDS = (
    admin_endpoint_usage,
    admin_usage,
    audit,
    audit_counters,
    cluster,
    config,
    diagnostics,
    image_prune,
    image_pull,
    invitation,
    mail,
    price,
    replay,
    webhook,
)


@command_group()
def admin() -> None:
    """Manage domains, users, policies and agents."""


for _entity in (*ENTITIES, PROVISIONED_MACHINE):
    _group = entity_group(_entity)
    for _command in _ENTITY_COMMANDS.get(_entity.command, ()):
        _group.add_command(_command)
    admin.add_command(_group)
    if _entity.alias:
        admin.add_command(_group, _entity.alias)
for _command in _OTHER_COMMANDS:
    admin.add_command(_command)
admin.add_command(replay_scaling_command, "replay-scaling")
