"""Users: accounts, roles and sign-out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from bai_services.core import client_networks, names
from bai_services.core.accounts.external_identities import Identities, Identity
from bai_services.core.accounts.passwords import check_password
from bai_services.core.accounts.records import CreatedUser, User
from bai_services.core.accounts.roles import Caller, Owner, Role, Target
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import Conflict, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.db.accounts.checked_users import CheckedUser
from bai_services.db.accounts.external_identities import IdentityStore
from bai_services.db.accounts.one_time_codes import OneTimeCodeStore
from bai_services.db.accounts.policies import PolicyStore
from bai_services.db.accounts.users import UserChange, UserStore

from ..context import ManagerContext
from ..events import ACCOUNT, FOLDER, Change
from ..mail.mails import Mails
from . import authorizer
from .domains import DEFAULT_POLICY, Domains
from .keypair_secrets import KeypairSecrets, new_keypair
from .lockouts import Lockouts
from .passwords import PasswordHashes
from .projects import Projects

ROLES = (Role.SUPERADMIN, Role.ADMIN, Role.USER, Role.MONITOR)
STATUSES = ("active", "inactive", "before-verification")
# Fields that users may change in their own accounts.
OWN_FIELDS = frozenset({"full_name", "description"})
_CONTAINER_IDS = ("container_uid", "container_gid")
# These fields determine whether a change is permitted and which side effects it has. The store
# rejects the change if one of these fields was changed after the check.
_CHECKED_FIELDS = ("role", "domain", "status", "allowed_client_ip", *_CONTAINER_IDS)


class Users:
    """Manage users; ``key`` is an id, a user name or an e-mail address."""

    def __init__(
        self,
        context: ManagerContext,
        domains: Domains,
        projects: Projects,
        passwords: PasswordHashes,
        secrets: KeypairSecrets,
        lockouts: Lockouts,
        mails: Mails,
    ) -> None:
        self._store = UserStore(context.database)
        self._codes = OneTimeCodeStore(context.database)
        self._identities = IdentityStore(context.database)
        self._policies = {kind: PolicyStore(context.database, kind) for kind in ("user", "keypair")}
        self._clock = context.clock
        self._audit = context.audit
        self._domains = domains
        self._projects = projects
        self._passwords = passwords
        self._secrets = secrets
        self._lockouts = lockouts
        self._mails = mails
        self._sign_outs_due = context.sign_outs_due
        self._capacity_changed = context.capacity_changed
        self._events = context.events

    async def page(self, caller: Caller, query: ListQuery) -> Page[User]:
        visible = authorizer.visibility(caller, "user.read")
        page = await self._store.page(query, visible.domain, visible.owner_id)
        return page.with_items(await self._with_sign_in_state(page.items))

    async def get(self, caller: Caller, key: str) -> User:
        visible = authorizer.visibility(caller, "user.read")
        user = await self._store.find(key, visible.domain, visible.owner_id)
        if user is None:
            raise NotFound(f"there is no user {key}, or you may not see this user")
        return (await self._with_sign_in_state([user]))[0]

    async def create(
        self,
        caller: Caller,
        spec: Mapping[str, Any],
        identity: Identity | None = None,
    ) -> CreatedUser:
        """Create an account with its main keypair; only this response contains the secret key.

        If no password is given, the user cannot sign in by password until a password is set.
        ``identity`` is an identity at an OpenID provider, with which the user can sign in.
        """
        domain = spec.get("domain") or caller.domain or ""
        authorizer.require(caller, "user.write")
        authorizer.require(caller, "user.write", Target(domain=domain))
        await self._domains.get(caller, domain)
        user_id, now = str(uuid.uuid4()), self._clock()
        values = {
            "id": user_id,
            "created_at": now,
            "domain": domain,
            "role": Role.USER,
            "status": "active",
            "resource_policy": DEFAULT_POLICY,
            "username": names.check_username(spec["username"]),
            "email": names.check_email(spec["email"]),
        }
        values |= await self._validated_columns(caller, spec, values)
        keypair = new_keypair()
        policy = spec.get("keypair_policy") or DEFAULT_POLICY
        await self._require_policy("keypair", policy)
        values["main_access_key"] = keypair.access_key
        keypair_columns = {
            "access_key": keypair.access_key,
            "created_at": now,
            "secret_key_encrypted": self._secrets.encrypt(keypair.secret_key),
            "user_id": user_id,
            "resource_policy": policy,
        }
        projects = await self._project_ids(caller, spec.get("projects") or (), domain)
        entry = self._audit.entry(
            caller, "user.create", user_id, domain=domain, owner_id=user_id, name=values["username"]
        )
        await self._store.create(values, keypair_columns, projects, entry, identity)
        created = await self.get(caller, user_id)
        return CreatedUser(**fields_of(created), keypair=keypair)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> User:
        """Update an account.

        A user who is deactivated or moved to another domain is signed out, and all sessions of
        this user are stopped. The folders of a moved user also move, and users of the old domain
        lose access to them. A new password, or the exclusion of an allowed address,
        revokes the user's tokens.

        Raises
        ------
        Forbidden
            If the user has a higher role than the caller, or if the caller may not change the role,
            the container ids or the domain.
        Conflict
            If the update would deactivate or demote the last active superadmin, or the account was
            changed while the update was checked.
        """
        user = await self._require_writable(caller, key, changes)
        values = await self._validated_columns(caller, changes, fields_of(user))
        leaves_domain = "domain" in values and values["domain"] != user.domain
        if values.get("status") == "active" and user.awaits_approval:
            values |= {"awaits_approval": False, "status_info": ""}
        is_deactivated = values.get("status", user.status) != "active" and user.status == "active"
        after = {name: values.get(name, value) for name, value in changes.items()}
        entry = self._entry(
            caller, "user.update", user, **self._audit.changes(fields_of(user), after)
        )
        projects = changes.get("projects", () if leaves_domain else None)
        domain = values.get("domain", user.domain)
        change = UserChange(
            values,
            projects=None
            if projects is None
            else await self._project_ids(caller, projects, domain),
            domain=domain if leaves_domain else None,
            signs_out=is_deactivated or leaves_domain,
            revokes_tokens="password_hash" in values
            or self._excludes_allowed_address(user, values),
        )
        changed, excluded = await self._store.update(_checked(user), change, entry)
        if change.signs_out or change.revokes_tokens:
            self._sign_outs_due()
        self._events.publish_to_user(user.id, ACCOUNT)
        if change.projects is not None:
            self._capacity_changed()
        if leaves_domain:
            self._notify_of_moved_folders(user, changed, excluded)
        return (await self._with_sign_in_state([changed]))[0]

    async def delete(self, caller: Caller, key: str) -> None:
        """Mark an account as ``deleted``, deactivate its keypairs and sign the user out."""
        user = await self._require_writable(caller, key, {"status": "deleted"})
        if user.id == caller.user_id:
            raise Conflict("you cannot delete your own account; another administrator can")
        await self._delete(user, self._entry(caller, "user.delete", user))

    async def delete_own(self, caller: Caller) -> None:
        """Delete the account of the caller, like ``delete``.

        Raises
        ------
        Conflict
            If this is the last active superadmin.
        """
        user = await self.get(caller, caller.user_id or "")
        authorizer.require(
            caller, "user.change-own", Target(domain=user.domain, owner=Owner(user.id, user.role))
        )
        await self._delete(user, self._entry(caller, "user.delete-own", user))

    async def _delete(self, user: User, entry: AuditEntry) -> None:
        change = UserChange(
            {"status": "deleted", "awaits_approval": False},
            deactivates_keypairs=True,
            signs_out=True,
        )
        await self._store.update(_checked(user), change, entry)
        self._sign_outs_due()

    async def approve(self, caller: Caller, key: str, language: str) -> User:
        """Activate an account that was created by a sign-up; inform the user by mail.

        Raises
        ------
        Conflict
            If the account does not await an approval.
        """
        user = await self._require_writable(caller, key, {"status": "active"})
        if not user.awaits_approval or user.status != "inactive":
            raise Conflict(f"the account of {user.username} does not await an approval")
        notice = None
        if self._mails.is_configured:
            notice = self._mails.new("account_approved", user.email, language)
        columns = {"status": "active", "status_info": "", "awaits_approval": False}
        entry = self._entry(caller, "user.approve", user)
        changed, _ = await self._store.update(
            _checked(user), UserChange(columns, notice=notice), entry
        )
        self._mails.wake()
        return (await self._with_sign_in_state([changed]))[0]

    async def sign_out(self, caller: Caller, key: str) -> None:
        """Revoke the tokens and stop the servers of a user; an active user may sign in again."""
        user = await self.get(caller, key)
        if user.id != caller.user_id:
            user = await self._require_writable(caller, key, {})
        entry = self._entry(caller, "user.sign-out", user)
        await self._store.update(_checked(user), UserChange({}, signs_out=True), entry)
        self._sign_outs_due()

    async def unlock(self, caller: Caller, key: str) -> None:
        """Reset an account's failed sign-ins and end its lockout, but not a block of an address."""
        user = await self._require_writable(caller, key, {"locked_until": None})
        entry = self._entry(caller, "user.unlock", user)
        await self._lockouts.unlock(_checked(user), (user.username, user.email), entry)

    async def remove_authenticator(self, caller: Caller, key: str) -> None:
        """Remove the authenticator of another user, who has lost it.

        Raises
        ------
        Conflict
            If it is the caller's own authenticator, which must not be removable with a stolen
            token.
        """
        user = await self._require_writable(caller, key, {"has_authenticator": False})
        if user.id == caller.user_id:
            raise Conflict(
                "you cannot reset your own authenticator; remove it in the settings, "
                "or ask another administrator"
            )
        entry = self._entry(caller, "user.reset-authenticator", user)
        await self._codes.reset(_checked(user), entry)

    async def identities(self, caller: Caller, key: str) -> Identities:
        """Return the identities of a user at OpenID providers."""
        user = await self.get(caller, key)
        return Identities(await self._identities.of(user.id))

    async def remove_identity(self, caller: Caller, key: str, identity_id: str) -> None:
        """Remove an identity of a user, who can then no longer sign in with it."""
        user = await self._require_writable(caller, key, {"identities": []})
        entry = self._entry(caller, "user.unlink-identity", user)
        await self._identities.remove(_checked(user), identity_id, entry)

    def _notify_of_moved_folders(self, before: User, after: User, excluded: Set[str]) -> None:
        """Notify the administrators of both domains, and users who have lost access to a folder."""
        for domain, user_ids in ((before.domain, excluded), (after.domain, set[str]())):
            change = Change("", None, FOLDER, after.id, "", domain)
            self._events.publish_to_users(user_ids, change)

    def _excludes_allowed_address(self, user: User, values: Mapping[str, Any]) -> bool:
        """Return whether ``values`` exclude an address from which the user could sign in so far."""
        allowed = values.get("allowed_client_ip", user.allowed_client_ip)
        return client_networks.excludes_addresses(user.allowed_client_ip, allowed)

    async def _with_sign_in_state(self, users: Sequence[User]) -> list[User]:
        """Return the users with the fields of their sign-in: ``is_locked``, ``locked_until`` and
        ``has_authenticator``.
        """
        ids = [user.id for user in users]
        until = await self._lockouts.locked_until(ids, self._clock())
        registered = await self._codes.registered(ids)
        return [
            replace(
                user,
                is_locked=user.id in until,
                locked_until=until.get(user.id),
                has_authenticator=user.id in registered,
            )
            for user in users
        ]

    async def _require_writable(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> User:
        user = await self.get(caller, key)
        target = Target(domain=user.domain, owner=Owner(user.id, user.role))
        if user.id == caller.user_id and set(changes) <= OWN_FIELDS:
            authorizer.require(caller, "user.change-own", target)
            return user
        authorizer.require(caller, "user.write", target)
        return user

    async def _validated_columns(
        self, caller: Caller, fields: Mapping[str, Any], current: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Validate ``fields`` and return the columns to set.

        ``current`` contains the values of the account before the change.
        """
        not_columns = {"password", "projects", "keypair_policy"}
        values = {key: value for key, value in fields.items() if key not in not_columns}
        if "username" in values:
            values["username"] = names.check_username(values["username"])
            if values["username"] != current["username"]:
                self._raise_for_rename(current)
        if "email" in values:
            values["email"] = names.check_email(values["email"])
        if values.get("allowed_client_ip") is not None:
            values["allowed_client_ip"] = client_networks.check_networks(
                values["allowed_client_ip"]
            )
        if "resource_policy" in values:
            await self._require_policy("user", values["resource_policy"])
        self._check_choice("status", values, STATUSES)
        self._check_choice("role", values, ROLES)
        if values.get("role", current["role"]) != current["role"]:
            authorizer.require(caller, "user.grant-role")
        if any(values.get(name, current.get(name)) != current.get(name) for name in _CONTAINER_IDS):
            # Only superadmins may do this: a container with the uid of another user could read that
            # user's files.
            authorizer.require(caller, "user.grant-role")
        if values.get("domain", current["domain"]) != current["domain"]:
            # Only superadmins may do this: it gives the administrators of another domain control
            # over the account.
            authorizer.require(caller, "user.grant-role")
            await self._domains.get(caller, values["domain"])
        if fields.get("password") is not None:
            own_names = [values.get(name, current[name]) for name in ("username", "email")]
            check_password(fields["password"], *own_names)
            values["password_hash"] = await self._passwords.hash(fields["password"])
            values["password_changed_at"] = self._clock()
        return values

    def _raise_for_rename(self, current: Mapping[str, Any]) -> None:
        raise InvalidRequest(
            f"user name {current['username']} cannot be changed: it identifies the user in the Hub",
            field="username",
        )

    def _check_choice(self, field: str, values: Mapping[str, Any], choices: Sequence[str]) -> None:
        if field in values and values[field] not in choices:
            raise InvalidRequest(
                f"{values[field]!r} is not a valid {field}; use one of {', '.join(choices)}",
                field=field,
            )

    async def _project_ids(self, caller: Caller, keys: Sequence[str], domain: str) -> list[str]:
        project_ids = []
        for key in keys:
            # A project name without a domain refers to a project of the user's domain.
            try:
                project = await self._projects.get(caller, f"{domain}/{key}")
            except NotFound:
                project = await self._projects.get(caller, key)
            if project.domain != domain:
                raise InvalidRequest(f"project {key} is not in domain {domain}", field="projects")
            project_ids.append(project.id)
        return project_ids

    async def _require_policy(self, kind: str, name: str) -> None:
        if await self._policies[kind].one(name) is None:
            raise NotFound(f"there is no {kind} policy {name}", name=name)

    def _entry(self, caller: Caller, action: str, user: User, **details: Any) -> AuditEntry:
        return self._audit.entry(
            caller,
            action,
            user.id,
            domain=user.domain,
            owner_id=user.id,
            name=user.username,
            **details,
        )


def _checked(user: User) -> CheckedUser:
    return CheckedUser(user.id, {name: getattr(user, name) for name in _CHECKED_FIELDS})
