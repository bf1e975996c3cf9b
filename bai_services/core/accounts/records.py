"""Domains, projects, users, keypairs, policies and SSH keys, with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from bai_services.core.resources import Caps

from .roles import Role

# Credentials to revoke. "sign-ins": browser sign-ins and OAuth tokens; "all": also API tokens.
Revocation = Literal["sign-ins", "all"]
# Permissions by storage host.
HostPermissions = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Domain:
    name: str
    created_at: datetime
    description: str
    is_active: bool
    total_resource_slots: Caps
    max_concurrent_sessions: int | None
    allowed_vfolder_hosts: HostPermissions


@dataclass(frozen=True, slots=True)
class Project:
    id: str
    created_at: datetime
    domain: str
    name: str
    description: str
    is_active: bool
    type: str
    total_resource_slots: Caps
    max_concurrent_sessions: int | None
    allowed_vfolder_hosts: HostPermissions
    resource_policy: str
    default_image: str | None


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a project."""

    id: str
    username: str
    email: str
    full_name: str
    role: Role
    status: str


@dataclass(frozen=True, slots=True)
class ProjectName:
    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user. The manager computes ``is_locked`` and ``locked_until`` from failed sign-ins.
    ``has_authenticator``: the user has registered an authenticator for one-time codes.
    """

    id: str
    created_at: datetime
    username: str
    email: str
    password_changed_at: datetime | None
    need_password_change: bool
    full_name: str
    description: str
    status: str
    status_info: str
    awaits_approval: bool
    role: Role
    domain: str
    resource_policy: str
    allowed_client_ip: Sequence[str] | None
    main_access_key: str | None
    container_uid: int | None
    container_gid: int | None
    projects: Sequence[ProjectName]
    is_locked: bool = False
    locked_until: datetime | None = None
    has_authenticator: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAccount:
    """The caller's own account.

    ``limits`` maps each slot to the lowest limit of the domain, the user and the keypair of the
    request; the key ``sessions`` is the number of sessions. The limits of the user's projects also
    apply, but are not included. ``usage`` maps each slot to the user's current usage. Both maps
    omit slots without a value.
    """

    id: str
    username: str
    email: str
    full_name: str
    role: Role
    domain: str
    projects: Sequence[ProjectName]
    keypairs: Sequence[str]
    need_password_change: bool
    limits: Mapping[str, str]
    usage: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NewKeypair:
    """A keypair with its secret key, which is shown only once."""

    access_key: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedUser(User):
    keypair: NewKeypair


@dataclass(frozen=True, slots=True, kw_only=True)
class Keypair:
    """A keypair without its secret key; ``user``, ``role`` and ``domain`` describe the owner."""

    access_key: str
    created_at: datetime
    user_id: str
    user: str
    role: Role
    domain: str
    is_active: bool
    rate_limit: int
    last_used: datetime | None
    resource_policy: str
    is_main: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeypairWithSecret(Keypair):
    """The response to the creation of a keypair, or to the change of its secret key."""

    secret_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeypairPolicy:
    name: str
    created_at: datetime
    default_for_unspecified: str
    total_resource_slots: Caps
    max_session_lifetime_seconds: int
    max_lifetime_extension_seconds: int
    max_concurrent_sessions: int | None
    max_pending_sessions: int | None
    max_pending_slots: Caps | None
    max_priority: int | None
    max_containers_per_session: int
    idle_timeout_seconds: int
    allowed_vfolder_hosts: HostPermissions


@dataclass(frozen=True, slots=True)
class UserPolicy:
    name: str
    created_at: datetime
    max_vfolder_count: int
    max_quota_scope_bytes: int
    max_concurrent_logins: int | None
    app_sharing: str
    max_app_share_seconds: int
    total_resource_slots: Caps
    max_concurrent_sessions: int | None
    max_pending_sessions: int | None
    max_schedules: int | None
    max_custom_images: int | None
    allows_public_endpoints: bool


@dataclass(frozen=True, slots=True)
class ProjectPolicy:
    name: str
    created_at: datetime
    max_vfolder_count: int
    max_quota_scope_bytes: int
    max_custom_images: int | None
    allows_member_imports: bool


ResourcePolicy = KeypairPolicy | UserPolicy | ProjectPolicy


@dataclass(frozen=True, slots=True)
class SshKey:
    """A public SSH key of a user."""

    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedSshKey(SshKey):
    """A new SSH key; ``private_key`` is set if the server generated the pair, and is shown once."""

    private_key: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class BrowserSignIn:
    """A browser in which a user is signed in.

    ``program``: browser and system, such as ``Firefox on Linux``. ``is_current``: the browser that
    sent the request.
    """

    id: str
    program: str
    address: str
    created_at: datetime
    last_used: datetime | None
    expires_at: datetime | None
    is_current: bool


@dataclass(frozen=True, slots=True)
class PendingSignOut:
    """A user with a pending sign-out or revocation at the Hub.

    ``tokens_to_end`` is None if only the user's servers must be stopped.
    """

    id: str
    username: str
    tokens_to_end: Revocation | None


@dataclass(frozen=True, slots=True)
class HubRole:
    """A role that an account has in the Hub."""

    name: str
    description: str
    scopes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAccount:
    """An account in the form that the Hub's authenticator expects."""

    id: str
    username: str
    email: str
    role: Role
    domain: str
    need_password_change: bool
    password_changed_at: datetime | None
    is_active: bool
    hub_groups: Sequence[str]
    hub_roles: Sequence[HubRole]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedAccount(HubAccount):
    """An account that has passed the sign-in checks.

    ``max_concurrent_logins``: maximum number of signed-in browsers; None: no limit. With
    ``need_code_registration``, the user must register an authenticator before the sign-in.
    ``code_proof`` replaces the one-time code in further steps of the sign-in; it is empty if no
    code was required.
    """

    max_concurrent_logins: int | None
    need_code_registration: bool = False
    code_proof: str = field(default="", repr=False)
