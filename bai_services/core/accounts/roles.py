"""Roles and their permissions: for each action, the objects on which a role may perform it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

# Hub scope of a single-user server's token; a filter restricts the scope to that server. A request
# with such a token has the role ``Role.SESSION``, never the role of the user.
SESSION_SCOPE = "custom:bai:session"


class Role(StrEnum):
    SUPERADMIN = "superadmin"
    ADMIN = "admin"  # administers one domain
    USER = "user"
    MONITOR = "monitor"  # reads the objects of all domains, changes only objects that it owns
    HUB = "hub"  # the Hub itself: authenticator and spawner
    AGENT = "agent"
    SCRAPER = "scraper"  # Prometheus, which reads the metrics
    GATEWAY = "gateway"  # forwards requests to replicas of endpoints
    SESSION = "session"  # code in a session, with some permissions of its owner


class Reach(IntEnum):
    """Objects on which a role may perform an action; each value includes the lower values."""

    NONE = 0
    OWN = 1
    PROJECT = 2
    DOMAIN = 3
    ALL = 4


@dataclass(frozen=True, slots=True)
class Caller:
    """The user or component that sent a request.

    ``domain`` is None for the Hub and for agents; ``projects`` holds project ids. ``agent_id`` is
    set for the credential of an agent, which is valid only for this agent.
    """

    role: Role
    user_id: str | None = None
    username: str = ""
    domain: str | None = None
    projects: frozenset[str] = frozenset()
    access_key: str | None = None
    client_ip: str = ""
    agent_id: str | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The user who owns an object, and the current role of that user."""

    id: str
    role: Role


@dataclass(frozen=True, slots=True)
class Target:
    """The domain, project and owner of the object of an action; None in fields that do not apply.

    Policies and resource groups have none of these fields. A session has all three. A folder or
    template of a project has no owner: its creator does not own it.
    """

    domain: str | None = None
    project_id: str | None = None
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Visibility:
    """The rows of a list that a caller may see; None in a field means no restriction.

    At most one of the first three fields is set. Rows of owners with a role in ``hidden_roles`` are
    omitted.
    """

    domain: str | None = None
    project_ids: frozenset[str] | None = None
    owner_id: str | None = None
    hidden_roles: frozenset[Role] = frozenset()

    @property
    def is_unrestricted(self) -> bool:
        return self == Visibility()

    def covers(self, domain: str, project_id: str, owner_id: str) -> bool:
        """Return whether the first three fields allow a row; the owner's role is not checked."""
        return (
            self.domain in (None, domain)
            and (self.project_ids is None or project_id in self.project_ids)
            and self.owner_id in (None, owner_id)
        )


def _reaches(user: Reach, admin: Reach, monitor: Reach) -> Mapping[Role, Reach]:
    return {
        Role.USER: user,
        Role.ADMIN: admin,
        Role.MONITOR: monitor,
        Role.SUPERADMIN: Reach.ALL,
    }


R = Reach
_EVERYONE = _reaches(R.ALL, R.ALL, R.ALL)
_SUPERADMIN = _reaches(R.NONE, R.NONE, R.NONE)
_ADMIN_READS = _reaches(R.NONE, R.DOMAIN, R.ALL)
_DOMAIN_WRITES = _reaches(R.NONE, R.DOMAIN, R.NONE)
_OWN_WRITES = _reaches(R.OWN, R.DOMAIN, R.OWN)
_OWN_READS = _reaches(R.OWN, R.DOMAIN, R.ALL)
_HUB = {Role.HUB: Reach.ALL}
_AGENT = {Role.AGENT: Reach.ALL}
_SESSION = {Role.SESSION: Reach.OWN}
_GATEWAY = {Role.GATEWAY: Reach.ALL}

# The reach of each role for every action; NONE for roles that are not listed.
ACTIONS: Mapping[str, Mapping[Role, Reach]] = {
    "domain.read": _reaches(R.DOMAIN, R.DOMAIN, R.ALL),
    "domain.write": _SUPERADMIN,
    "project.read": _reaches(R.PROJECT, R.DOMAIN, R.ALL),
    "project.write": _DOMAIN_WRITES,
    # Variables, dotfiles and scripts of a session setup may contain credentials.
    "project.read-setup": _reaches(R.PROJECT, R.DOMAIN, R.NONE),
    "user.read": _OWN_READS,
    "user.write": _DOMAIN_WRITES,
    "user.change-own": _reaches(R.OWN, R.OWN, R.OWN),
    "user.grant-role": _SUPERADMIN,
    # Permanently remove an inactive user.
    "user.purge": _SUPERADMIN,
    "keypair.read": _OWN_READS,
    "keypair.write": _DOMAIN_WRITES,
    "keypair.change-own": _reaches(R.OWN, R.OWN, R.OWN),
    "ssh-key.read": {**_reaches(R.OWN, R.OWN, R.OWN), **_SESSION},
    "ssh-key.write": _reaches(R.OWN, R.OWN, R.OWN),
    # Variables, secrets, dotfiles and bootstrap script of one's own sessions.
    "setup.read": _reaches(R.OWN, R.OWN, R.OWN),
    "setup.write": _reaches(R.OWN, R.OWN, R.OWN),
    "policy.read": _EVERYONE,
    "policy.write": _SUPERADMIN,
    "resource-group.read": _reaches(R.PROJECT, R.DOMAIN, R.ALL),
    "resource-group.read-links": _reaches(R.NONE, R.NONE, R.ALL),
    "resource-group.write": _SUPERADMIN,
    # Replay the history of a resource group under other policies, without names of other domains.
    "replay.read": _reaches(R.NONE, R.ALL, R.ALL),
    "replay.create": _reaches(R.NONE, R.ALL, R.NONE),
    # Cancel a replay of another user.
    "replay.cancel": _SUPERADMIN,
    "agent.read": _reaches(R.NONE, R.ALL, R.ALL),
    "agent.read-summary": _EVERYONE,
    "agent.write": _SUPERADMIN,
    "agent.report": _AGENT,
    "image.read": _EVERYONE,
    "image.write": _SUPERADMIN,
    "image-registry.read": _SUPERADMIN,
    "image-registry.write": _SUPERADMIN,
    # Custom images: commits of sessions. Shared images are visible without a permission.
    "custom-image.read": _OWN_READS,
    "custom-image.write": _OWN_WRITES,
    "custom-image.publish": _SUPERADMIN,
    "image-pull.read": _reaches(R.NONE, R.ALL, R.ALL),
    "image-pull.write": _SUPERADMIN,
    "preset.read": _EVERYONE,
    "preset.write": _SUPERADMIN,
    "vfolder.read": {**_OWN_READS, **_SESSION},
    "vfolder.create": _reaches(R.OWN, R.DOMAIN, R.NONE),
    "vfolder.write": _OWN_WRITES,
    "vfolder.hand-over": _SUPERADMIN,
    "vfolder.use-existing": _SUPERADMIN,
    "quota.read": {**_OWN_READS, **_SESSION},
    "quota.write": _SUPERADMIN,
    "storage-host.read": _EVERYONE,
    "session.read": {**_OWN_READS, **_HUB, **_SESSION},
    "session.create": {**_reaches(R.OWN, R.OWN, R.NONE), **_HUB},
    # Create a session that another user owns.
    "session.create-for": _DOMAIN_WRITES,
    # Read the environment, command, callback and output, which may contain the owner's secrets.
    "session.read-private": {**_OWN_WRITES, **_HUB, **_SESSION},
    "session.write": {**_OWN_WRITES, **_HUB, **_SESSION},
    "session.change-priority": {**_OWN_WRITES, **_HUB},
    # Set a priority above the limit of the owner's keypair policy.
    "session.prioritize": _DOMAIN_WRITES,
    # Designate the agents of a session.
    "session.designate": _DOMAIN_WRITES,
    # Share an app of a session, and revoke the share.
    "session.share": _reaches(R.OWN, R.OWN, R.NONE),
    "session.unshare": _reaches(R.OWN, R.DOMAIN, R.NONE),
    # Work inside a session with its owner's permissions: allowed only to the owner.
    "session.enter": {**_reaches(R.OWN, R.OWN, R.OWN), Role.SUPERADMIN: R.OWN},
    "session.launch": _HUB,
    "template.read": _reaches(R.PROJECT, R.DOMAIN, R.ALL),
    "template.write": _reaches(R.OWN, R.DOMAIN, R.NONE),
    "schedule.read": _OWN_READS,
    # A schedule's request runs with the owner's permissions, so only the owner may set it.
    "schedule.write": {**_reaches(R.OWN, R.OWN, R.NONE), Role.SUPERADMIN: R.OWN},
    # Pause or delete a schedule.
    "schedule.pause": _reaches(R.OWN, R.DOMAIN, R.NONE),
    # Members of a project may see its endpoints.
    "endpoint.read": _reaches(R.PROJECT, R.DOMAIN, R.ALL),
    # Replicas run with the permissions of the endpoint's owner, so only the owner may define the
    # endpoint and create tokens.
    "endpoint.write": {**_reaches(R.OWN, R.OWN, R.NONE), Role.SUPERADMIN: R.OWN},
    # Pause, scale or delete an endpoint, undo a rollout, revoke tokens.
    "endpoint.manage": _reaches(R.OWN, R.DOMAIN, R.NONE),
    # Call an endpoint of one's projects from the chat page.
    "endpoint.chat": {**_reaches(R.PROJECT, R.PROJECT, R.NONE), Role.SUPERADMIN: R.PROJECT},
    # Users read and change only their own chats.
    "chat.use-own": _EVERYONE,
    # Models of projects of the type model-store; the members of the project may see them.
    "model.read": _reaches(R.PROJECT, R.DOMAIN, R.ALL),
    "model.refresh": _reaches(R.PROJECT, R.DOMAIN, R.NONE),
    "model-import.read": _OWN_READS,
    # Members of a model store may request imports, which start only after approval.
    "model-import.request": _reaches(R.PROJECT, R.DOMAIN, R.NONE),
    "model-import.approve": _DOMAIN_WRITES,
    "model-import.cancel": _reaches(R.OWN, R.DOMAIN, R.NONE),
    "model-import.retry": _reaches(R.OWN, R.DOMAIN, R.NONE),
    # Pipelines contain commands and variables, so monitors do not see pipelines of other users.
    "pipeline.read": _OWN_WRITES,
    # Tasks run with the permissions of the pipeline's owner, so only the owner may define and run
    # it.
    "pipeline.write": {**_reaches(R.OWN, R.OWN, R.NONE), Role.SUPERADMIN: R.OWN},
    # Cancel runs, decide approvals, and delete pipelines.
    "pipeline.manage": _reaches(R.OWN, R.DOMAIN, R.NONE),
    # Pipelines that belong to a project: members see and run them; administrators define them.
    "project-pipeline.read": _reaches(R.PROJECT, R.DOMAIN, R.PROJECT),
    "project-pipeline.run": {**_reaches(R.PROJECT, R.PROJECT, R.NONE), Role.SUPERADMIN: R.PROJECT},
    "project-pipeline.write": _DOMAIN_WRITES,
    # Imports of repositories, archives and files into folders run with the owner's permissions.
    "folder-import.read": _OWN_READS,
    "folder-import.create": {**_reaches(R.OWN, R.OWN, R.NONE), Role.SUPERADMIN: R.OWN},
    "folder-import.cancel": _reaches(R.OWN, R.DOMAIN, R.NONE),
    "gateway.read-routes": _GATEWAY,
    "gateway.report": _GATEWAY,
    "allocation.read": _OWN_READS,
    "usage.read": _OWN_READS,
    # The budget of a project, which its members may see.
    "budget.read": _reaches(R.PROJECT, R.DOMAIN, R.ALL),
    "budget.write": _DOMAIN_WRITES,
    # Rules of a project by which its pending sessions move to other resource groups.
    "overflow-rule.read": _reaches(R.PROJECT, R.DOMAIN, R.ALL),
    "overflow-rule.write": _DOMAIN_WRITES,
    "price.read": _EVERYONE,
    "price.write": _SUPERADMIN,
    "audit.read": _ADMIN_READS,
    # Read the entries of other actors about one's own sessions, folders and account.
    "audit.read-own": _EVERYONE,
    "audit.verify": _reaches(R.NONE, R.NONE, R.ALL),
    "announcement.read": _ADMIN_READS,
    "announcement.write": _DOMAIN_WRITES,
    "announcement.read-current": {**_EVERYONE, **_SESSION},
    "announcement.dismiss": _EVERYONE,
    "maintenance.read": _reaches(R.NONE, R.ALL, R.ALL),
    "maintenance.write": _SUPERADMIN,
    "maintenance.read-current": _EVERYONE,
    "reservation.read": _reaches(R.PROJECT, R.DOMAIN, R.ALL),
    "reservation.create": _reaches(R.PROJECT, R.DOMAIN, R.NONE),
    "reservation.approve": _DOMAIN_WRITES,
    "reservation.cancel": _OWN_WRITES,
    "configuration.read": _reaches(R.NONE, R.NONE, R.ALL),
    "configuration.write": _SUPERADMIN,
    "configuration.report": _HUB,
    "system.read": _reaches(R.NONE, R.NONE, R.ALL),
    "metrics.read": {**_reaches(R.NONE, R.NONE, R.ALL), Role.SCRAPER: R.ALL},
    "counter-audit.read": _reaches(R.NONE, R.NONE, R.ALL),
    # Idle checkers are rules for all domains; superadmins define them.
    "idle-checker.read": _reaches(R.NONE, R.ALL, R.ALL),
    "idle-checker.write": _SUPERADMIN,
    # Bindings of scopes, and decisions about sessions.
    "idle-checker.read-bindings": _ADMIN_READS,
    "idle-checker.bind": _DOMAIN_WRITES,
    "idle-checker.replay": _ADMIN_READS,
    "preemption.read": _ADMIN_READS,
    "scheduler.drain": _HUB,
    # Users read and change only their own notifications.
    "notification.read": _EVERYONE,
    "notification.change": _EVERYONE,
    "webhook.use-own": _EVERYONE,
    # Webhooks of administrators.
    "webhook.read": _ADMIN_READS,
    "webhook.write": _DOMAIN_WRITES,
    "mail.read": {**_SUPERADMIN, **_HUB},
    "mail.test": _SUPERADMIN,
    "account.verify": _HUB,
    "account.read": _HUB,
    # For users of the Hub's pages who are not signed in.
    "account.reset-password": _HUB,
    "account.sign-up": _HUB,
    "account.delete": _HUB,
    "sign-up-invitation.read": _ADMIN_READS,
    "sign-up-invitation.write": _DOMAIN_WRITES,
}


def reach(role: Role, action: str) -> Reach:
    """Return the reach of ``role`` for ``action``; raise KeyError for an unknown action (a bug)."""
    return ACTIONS[action].get(role, Reach.NONE)


# By default, a role cannot act on objects of owners with a higher rank.
_RANKS: Mapping[Role, int] = {Role.USER: 0, Role.MONITOR: 0, Role.ADMIN: 1, Role.SUPERADMIN: 2}
# Ranks do not apply to these actions: they return no files, environments or secrets, and
# administrators need them for the accounts of their domain.
_METADATA_READS = frozenset({"user.read", "keypair.read", "quota.read", "usage.read"})
# A caller who can change an account or a keypair can sign in as its owner. A monitor can read every
# domain, so for these actions its rank is above that of a domain admin.
_CREDENTIAL_WRITES = frozenset({"user.write", "keypair.write"})


def reaches(caller: Caller, action: str, target: Target) -> bool:
    """Return whether the caller may perform ``action`` on ``target``.

    The caller cannot act on objects of an owner with a higher rank, unless the caller's reach is
    ALL or the action only reads metadata.
    """
    scope = reach(caller.role, action)
    if scope is Reach.ALL:
        return True
    owner = target.owner
    if owner is not None and owner.id == caller.user_id:
        return scope >= Reach.OWN
    if owner is not None and owner.role in roles_above(caller.role, action):
        return False
    if scope >= Reach.DOMAIN and target.domain is not None and target.domain == caller.domain:
        return True
    return scope >= Reach.PROJECT and target.project_id in caller.projects


def roles_above(role: Role, action: str) -> frozenset[Role]:
    """Return the owners' roles that exclude an object from ``action`` by ``role``."""
    if action in _METADATA_READS or reach(role, action) is Reach.ALL:
        return frozenset()
    rank = _RANKS.get(role, 0)
    above = {other for other, its_rank in _RANKS.items() if its_rank > rank}
    if action in _CREDENTIAL_WRITES:
        above.add(Role.MONITOR)
    return frozenset(above - {role})
