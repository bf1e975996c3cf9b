"""Store users' public SSH keys for their sessions; private keys are never stored."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from bai_services.core.accounts.records import CreatedSshKey, SshKey
from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.accounts.ssh_keys import MAX_KEYS, check_key_name, parse_public_key
from bai_services.core.errors import Forbidden
from bai_services.core.record_fields import fields_of
from bai_services.db.accounts.ssh_keys import SshKeyStore

from ..context import ManagerContext
from . import authorizer


class SshKeys:
    """Manage the caller's own keys; no role can add a key for another user's sessions."""

    def __init__(self, context: ManagerContext) -> None:
        self._store = SshKeyStore(context.database)
        self._clock = context.clock
        self._audit = context.audit

    async def list(self, caller: Caller) -> Sequence[SshKey]:
        """Return the caller's keys; for a session, the keys of its owner."""
        owner_id = _own(caller, "ssh-key.read")
        return await self._store.of(owner_id)

    async def add(self, caller: Caller, spec: Mapping[str, Any]) -> CreatedSshKey:
        """Store the public key in ``spec``; generate a key pair if ``spec`` has no key.

        Only this response contains a generated private key.
        """
        owner_id = _own(caller, "ssh-key.write")
        name = check_key_name(spec["name"])
        private_key, text = None, spec.get("public_key")
        if text is None:
            private_key, text = new_pair(name)
        key = parse_public_key(text)
        stored = SshKey(name, key.text, key.fingerprint, self._clock())
        entry = self._audit.entry(
            caller, "ssh-key.add", name, domain=caller.domain, fingerprint=key.fingerprint
        )
        row = {"id": str(uuid.uuid4()), "user_id": owner_id, **fields_of(stored)}
        await self._store.add(row, MAX_KEYS, entry)
        return CreatedSshKey(**fields_of(stored), private_key=private_key)

    async def remove(self, caller: Caller, name: str) -> None:
        """Delete a key; existing connections stay open, new ones are rejected."""
        owner_id = _own(caller, "ssh-key.write")
        entry = self._audit.entry(caller, "ssh-key.remove", name, domain=caller.domain)
        await self._store.remove(owner_id, name, entry)


def new_pair(comment: str) -> tuple[str, str]:
    """Return a new private and public key in OpenSSH format."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()} {comment}"


def _own(caller: Caller, action: str) -> str:
    if caller.user_id is None:
        raise Forbidden(f"{caller.role} is a system component, not a user")
    owner = Owner(caller.user_id, caller.role)
    authorizer.require(caller, action, Target(owner=owner))
    return caller.user_id
