"""Keypairs: access and secret keys that programs use to sign requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.records import Keypair, KeypairWithSecret
from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.core.sessions.callbacks import secret_of
from bai_services.db.accounts.checked_users import CheckedUser
from bai_services.db.accounts.keypairs import KeypairStore
from bai_services.db.accounts.policies import PolicyStore

from ..context import ManagerContext
from . import authorizer
from .domains import DEFAULT_POLICY
from .keypair_secrets import KeypairSecrets, new_keypair, new_secret_key
from .users import Users

# Fields of a keypair that its owner may change. The owner can thus activate a keypair that an
# administrator has deactivated; see docs/security.md. Only administrators may create keypairs,
# because each keypair has its own limits.
OWN_FIELDS = frozenset({"is_active", "new_secret"})
MAX_RATE_LIMIT = 10_000_000


class Keypairs:
    """List, get, create, update and delete keypairs, identified by their access keys."""

    def __init__(self, context: ManagerContext, users: Users, secrets: KeypairSecrets) -> None:
        self._store = KeypairStore(context.database)
        self._policies = PolicyStore(context.database, "keypair")
        self._clock = context.clock
        self._audit = context.audit
        self._users = users
        self._secrets = secrets
        self._capacity_changed = context.capacity_changed

    async def page(self, caller: Caller, query: ListQuery) -> Page[Keypair]:
        visible = authorizer.visibility(caller, "keypair.read")
        return await self._store.page(query, visible.domain, visible.owner_id)

    async def get(self, caller: Caller, access_key: str) -> Keypair:
        found = await self._store.one(access_key)
        if found is None:
            raise NotFound(f"there is no keypair {access_key}, or you may not see it")
        authorizer.require(caller, "keypair.read", _target(found))
        return found

    async def callback_secret(self, caller: Caller, access_key: str) -> dict[str, str]:
        """Return the secret that signs the callbacks of a keypair's sessions.

        Only the keypair's owner may read it. It is derived from the secret key and grants no
        access.
        """
        found = await self.get(caller, access_key)
        if found.user_id != caller.user_id:
            raise Forbidden("only the owner of a keypair may read its callback secret")
        authorizer.require(caller, "keypair.change-own", _target(found))
        encrypted = await self._store.encrypted_secret(access_key)
        if encrypted is None:
            raise NotFound(f"keypair {access_key} no longer exists")
        secret = secret_of(self._secrets.decrypt(encrypted))
        return {"access_key": access_key, "callback_secret": secret}

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> KeypairWithSecret:
        """Create a keypair for ``user`` (default: the caller).

        Only this response contains the secret key.
        """
        authorizer.require(caller, "keypair.write")
        owner = await self._users.get(caller, spec.get("user") or caller.user_id or "")
        target = Target(domain=owner.domain, owner=Owner(owner.id, owner.role))
        authorizer.require(caller, "keypair.write", target)
        if owner.status == "deleted":
            raise Conflict(f"{owner.username} is deleted")
        columns = await self._validated_columns(spec)
        columns.setdefault("resource_policy", DEFAULT_POLICY)
        await self._require_policy(columns["resource_policy"])
        keypair = new_keypair()
        values = {
            "access_key": keypair.access_key,
            "created_at": self._clock(),
            "secret_key_encrypted": self._secrets.encrypt(keypair.secret_key),
            **columns,
        }
        entry = self._audit.entry(
            caller,
            "keypair.create",
            keypair.access_key,
            domain=owner.domain,
            owner_id=owner.id,
            user=owner.username,
        )
        checked = CheckedUser(
            owner.id, {"role": owner.role, "domain": owner.domain, "status": owner.status}
        )
        await self._store.create(checked, values, bool(spec.get("is_main")), entry)
        created = await self.get(caller, keypair.access_key)
        return KeypairWithSecret(**fields_of(created), secret_key=keypair.secret_key)

    async def update(self, caller: Caller, access_key: str, changes: Mapping[str, Any]) -> Keypair:
        """Update a keypair; with ``new_secret``, only this response contains the new secret key."""
        keypair = await self._require_writable(caller, access_key, changes)
        columns = await self._validated_columns(changes)
        secret_key = new_secret_key() if changes.get("new_secret") else None
        if secret_key is not None:
            columns["secret_key_encrypted"] = self._secrets.encrypt(secret_key)
        details = self._audit.changes(fields_of(keypair), changes)
        entry = self._entry(caller, "keypair.update", keypair, **details)
        is_main = bool(changes.get("is_main"))
        changed = await self._store.update(
            _owner(keypair), access_key, columns, is_main, entry, self._clock()
        )
        self._capacity_changed()
        if secret_key is None:
            return changed
        return KeypairWithSecret(**fields_of(changed), secret_key=secret_key)

    async def delete(self, caller: Caller, access_key: str) -> None:
        keypair = await self._require_writable(caller, access_key, {"delete": True})
        entry = self._entry(caller, "keypair.delete", keypair)
        await self._store.delete(_owner(keypair), access_key, entry)

    async def _require_writable(
        self, caller: Caller, access_key: str, changes: Mapping[str, Any]
    ) -> Keypair:
        keypair = await self.get(caller, access_key)
        if keypair.user_id == caller.user_id and set(changes) <= OWN_FIELDS:
            authorizer.require(caller, "keypair.change-own", _target(keypair))
            return keypair
        authorizer.require(caller, "keypair.write", _target(keypair))
        return keypair

    async def _validated_columns(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        names = ("is_active", "rate_limit", "resource_policy")
        values = {key: fields[key] for key in names if key in fields}
        if not 1 <= values.get("rate_limit", 1) <= MAX_RATE_LIMIT:
            raise InvalidRequest(
                f"rate_limit must be between 1 and {MAX_RATE_LIMIT}, not {values['rate_limit']}",
                field="rate_limit",
            )
        if "resource_policy" in values:
            await self._require_policy(values["resource_policy"])
        return values

    async def _require_policy(self, name: str) -> None:
        if await self._policies.one(name) is None:
            raise NotFound(f"there is no keypair policy {name}", name=name)

    def _entry(self, caller: Caller, action: str, keypair: Keypair, **details: Any) -> AuditEntry:
        return self._audit.entry(
            caller,
            action,
            keypair.access_key,
            domain=keypair.domain,
            owner_id=keypair.user_id,
            user=keypair.user,
            **details,
        )


def _target(keypair: Keypair) -> Target:
    return Target(domain=keypair.domain, owner=Owner(keypair.user_id, keypair.role))


def _owner(keypair: Keypair) -> CheckedUser:
    return CheckedUser(keypair.user_id, {"role": keypair.role, "domain": keypair.domain})
