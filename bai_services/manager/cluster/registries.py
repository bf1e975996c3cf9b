"""Manage image registries and request scans of them."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.registries import (
    KINDS,
    OPEN_SCANS,
    ImageRegistry,
    RegistryKind,
    ScanEvent,
    ScanStatus,
    check_patterns,
    check_registry_url,
    check_repositories,
)
from bai_services.core.coded_text import refusal
from bai_services.core.errors import Conflict, InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.record_fields import fields_of
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.db.cluster.registries import RegistryStore

from ..accounts import authorizer
from ..accounts.keypair_secrets import KeypairSecrets
from ..accounts.projects import Projects
from ..context import ManagerContext
from .pull_secrets import PullSecrets

_PLAIN_FIELDS = (
    "username",
    "rescan_seconds",
    "is_enabled",
    "activates_images",
    "labelled_only",
    "is_global",
)


# A secret and a long text: the audit log records only that they have changed.
_NOT_IN_AUDIT = frozenset({"password_encrypted", "ca_certificate"})


class ImageRegistries:
    """Manages registries. Passwords are stored encrypted, and no method returns them."""

    def __init__(
        self,
        context: ManagerContext,
        store: RegistryStore,
        cipher: KeypairSecrets,
        targets: AllowedTargets,
        *,
        projects: Projects,
        secrets: PullSecrets,
        wake: Callable[[], None],
    ) -> None:
        """``secrets`` caches passwords; ``wake`` wakes the loop of the scans."""
        self._store = store
        self._cipher = cipher
        self._targets = targets
        self._projects = projects
        self._secrets = secrets
        self._wake = wake
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[ImageRegistry]:
        authorizer.require(caller, "image-registry.read")
        return await self._store.page(query)

    async def get(self, caller: Caller, name: str) -> ImageRegistry:
        authorizer.require(caller, "image-registry.read")
        return await self._store.find(name)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> ImageRegistry:
        """Create a registry; the kind sets the URL and the user name if they are not given.

        Raises
        ------
        InvalidRequest
            If a value is not valid, or the host is not allowed.
        AlreadyExists
            If a registry with this name or host exists.
        """
        authorizer.require(caller, "image-registry.write")
        kind = RegistryKind(spec.get("kind", RegistryKind.DOCKER))
        spec = {
            "url": KINDS[kind].url,
            "username": KINDS[kind].username,
            "password": "",
            "ca_certificate": "",
            "repositories": [],
            "patterns": [],
            "rescan_seconds": 0,
            "is_enabled": True,
            "activates_images": False,
            "labelled_only": True,
            "is_global": True,
            "allowed_projects": [],
            **spec,
        }
        name = check_slug("image registry", spec["name"])
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "name": name,
            "kind": kind,
            "scan_status": ScanStatus.NEVER,
            **self._columns(spec, kind),
        }
        _check_password(values["url"], bool(values["password_encrypted"]))
        projects = await self._project_ids(caller, spec["allowed_projects"])
        entry = self._entry(caller, "create", name, url=values["url"], kind=kind)
        made = await self._store.create(values, projects, entry)
        self._changed()
        return made

    async def update(self, caller: Caller, name: str, changes: Mapping[str, Any]) -> ImageRegistry:
        """Change a registry; without ``password``, it keeps its password.

        A URL with another host requires a new password, because the stored password belongs to the
        previous host.
        """
        authorizer.require(caller, "image-registry.write")
        found = await self._store.find(name)
        values = self._columns(changes, RegistryKind(found.kind))
        if "repositories" not in values:
            check_repositories(found.repositories, RegistryKind(found.kind))
        if values.get("host", found.host) != found.host:
            if found.has_password and "password" not in changes:
                raise InvalidRequest(
                    refusal(RefusalText.PASSWORD_OF_OTHER_HOST),
                    field="password",
                )
            if found.scan_status in OPEN_SCANS:
                raise Conflict(refusal(RefusalText.SCAN_RUNNING))
        has_password = bool(values.get("password_encrypted", found.has_password))
        _check_password(values.get("url", found.url), has_password)
        projects = None
        if "allowed_projects" in changes:
            projects = await self._project_ids(caller, changes["allowed_projects"])
        shown = {name: value for name, value in values.items() if name not in _NOT_IN_AUDIT}
        if projects is not None:
            shown["allowed_projects"] = list(changes["allowed_projects"])
        details = self._audit.changes(fields_of(found), shown)
        for field in ("password", "ca_certificate"):
            if field in changes:
                details[f"is_{field}_changed"] = True
        entry = self._entry(caller, "update", found.name, **details)
        updated = await self._store.update(found.name, values, projects, entry)
        self._changed()
        return updated

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a registry; its images remain registered."""
        authorizer.require(caller, "image-registry.write")
        found = await self._store.find(name)
        await self._store.delete(found.id, self._entry(caller, "delete", found.name))
        self._changed()

    async def scan(self, caller: Caller, name: str) -> ImageRegistry:
        """Queue a scan.

        Raises
        ------
        InvalidTransition
            If the last scan has not ended.
        """
        authorizer.require(caller, "image-registry.write")
        entry = self._entry(caller, "scan", name)
        queued = await self._store.request_scan(name, caller.username, self._clock(), entry)
        self._wake()
        return queued

    async def cancel_scan(self, caller: Caller, name: str) -> ImageRegistry:
        """Cancel the scan; the images that it has found remain registered.

        Raises
        ------
        InvalidTransition
            If no scan is queued or running.
        """
        authorizer.require(caller, "image-registry.write")
        cancelled = await self._store.apply(
            name,
            None,
            ScanEvent.CANCELLED,
            {"scan_ended_at": self._clock()},
            self._entry(caller, "cancel-scan", name),
        )
        self._wake()
        return cancelled

    def _columns(self, fields: Mapping[str, Any], kind: RegistryKind) -> dict[str, Any]:
        values = {name: fields[name] for name in _PLAIN_FIELDS if name in fields}
        if "url" in fields:
            values["url"], values["host"] = check_registry_url(fields["url"])
            host = values["host"].partition(":")[0]
            if self._targets.is_off or not self._targets.allows_name(host):
                raise InvalidRequest(refusal(RefusalText.SCAN_HOST_REFUSED, host=host), field="url")
        if "password" in fields:
            password = fields["password"]
            values["password_encrypted"] = self._cipher.encrypt(password) if password else ""
        if "ca_certificate" in fields:
            values["ca_certificate"] = _checked_certificate(fields["ca_certificate"])
        if "repositories" in fields:
            values["repositories"] = check_repositories(fields["repositories"], kind)
        if "patterns" in fields:
            values["patterns"] = check_patterns(fields["patterns"])
        return values

    async def _project_ids(self, caller: Caller, keys: Sequence[str]) -> list[str]:
        return sorted({(await self._projects.get(caller, key)).id for key in keys})

    def _changed(self) -> None:
        self._secrets.changed()
        self._wake()

    def _entry(self, caller: Caller, verb: str, name: str, **details: Any) -> AuditEntry:
        return self._audit.entry(caller, f"image-registry.{verb}", name, **details)


def _check_password(url: str, has_password: bool) -> None:
    if has_password and not url.startswith("https://"):
        raise InvalidRequest(refusal(RefusalText.REGISTRY_NEEDS_HTTPS), field="url")


def _checked_certificate(text: str) -> str:
    """Return a certificate in PEM; "" for an empty text.

    Raises
    ------
    InvalidRequest
        If the text contains no valid certificate.
    """
    text = text.strip()
    if not text:
        return ""
    try:
        ssl.create_default_context().load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise InvalidRequest(
            refusal(RefusalText.CERTIFICATE_NOT_VALID),
            field="ca_certificate",
        ) from None
    if "PRIVATE KEY" in text:
        raise InvalidRequest(refusal(RefusalText.CERTIFICATE_WITH_KEY), field="ca_certificate")
    return text + "\n"
