"""Webhooks of users and administrators: create, change, test, delivery log."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from bai_services.core.accounts.roles import Caller, Reach, Target, Visibility, reach, reaches
from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import Forbidden, InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.catalogue import EVENTS
from bai_services.core.notifications.records import (
    CreatedWebhook,
    Webhook,
    WebhookDelivery,
    WebhookSecret,
    WebhookTest,
)
from bai_services.core.notifications.webhooks import TEST_EVENT, Message, WebhookKind
from bai_services.core.record_fields import fields_of
from bai_services.core.sessions.callbacks import AllowedTargets, check_url
from bai_services.core.user_input import shown
from bai_services.db.notifications.webhooks import WebhookStore, no_webhook
from bai_services.i18n.catalogue import LANGUAGES

from ..accounts import authorizer
from ..accounts.domains import Domains
from ..accounts.keypair_secrets import KeypairSecrets
from ..context import ManagerContext
from ..sessions.callback_calls import CallFailed
from .delivery import WebhookCalls
from .texts import text_of, title_of

SECRET_BYTES = 32
# A change of these fields, or a successful test, ends the suspension of a webhook.
_RESUMING = frozenset({"url", "is_enabled"})
_RESUMED = {"suspended_at": None, "failures": 0, "failing_since": None, "last_error": ""}


class Webhooks:
    """Manages webhooks of users, and for administrators also the webhooks of their scope.

    No user sees the webhooks of another user, because their URLs are private.
    """

    def __init__(
        self,
        context: ManagerContext,
        domains: Domains,
        encryption: KeypairSecrets,
        calls: WebhookCalls,
        targets: AllowedTargets,
    ) -> None:
        self._store = WebhookStore(context.database)
        self._domains = domains
        self._secrets = encryption
        self._calls = calls
        self._targets = targets
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[Webhook]:
        authorizer.require(caller, "webhook.use-own")
        return await self._store.page(query, caller.user_id, _shared(caller))

    async def get(self, caller: Caller, key: str) -> Webhook:
        authorizer.require(caller, "webhook.use-own")
        return await self._find(caller, key)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> CreatedWebhook:
        """Create a webhook of the caller or, with ``scope``, of a domain or the installation.

        Raises
        ------
        InvalidRequest
            If the URL is not allowed, or another value is not valid.
        Conflict
            If there are too many webhooks.
        """
        authorizer.require(caller, "webhook.use-own")
        owner_id, domain = await self._scope(caller, spec)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "changed_by_role": caller.role,
            "owner_id": owner_id,
            "domain": domain,
            "kind": WebhookKind(spec.get("kind", WebhookKind.JSON)),
            "secret_encrypted": self._secrets.encrypt(secret),
            "language": "en",
            "events": [],
            "is_enabled": True,
            **self._columns({"name": "", **spec}),
        }
        values["name"] = values["name"] or values["host"][:64]
        made = await self._store.create(values, self._entry(caller, "webhook.create", values))
        return CreatedWebhook(**fields_of(made), secret=secret)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Webhook:
        """Change a webhook; a new URL, and ``is_enabled``, end a suspension."""
        found = await self._require_writable(caller, key)
        values = self._columns({k: v for k, v in changes.items() if v is not None})
        shown_changes = {name: value for name, value in values.items() if name != "url_encrypted"}
        details = self._audit.changes(fields_of(found), shown_changes)
        if _RESUMING & changes.keys():
            values |= _RESUMED
        values["changed_by_role"] = caller.role
        entry = self._entry(caller, "webhook.update", fields_of(found), **details)
        return await self._store.update(key, values, entry, self._clock())

    async def delete(self, caller: Caller, key: str) -> None:
        found = await self._require_writable(caller, key)
        await self._store.delete(key, self._entry(caller, "webhook.delete", fields_of(found)))

    async def renew_secret(self, caller: Caller, key: str) -> WebhookSecret:
        """Replace the secret of the signatures; only this response contains the new one."""
        found = await self._require_writable(caller, key)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        values = {"secret_encrypted": self._secrets.encrypt(secret)}
        entry = self._entry(caller, "webhook.renew-secret", fields_of(found))
        await self._store.update(key, values, entry, self._clock())
        return WebhookSecret(id=key, secret=secret)

    async def deliveries(self, caller: Caller, key: str, query: ListQuery) -> Page[WebhookDelivery]:
        authorizer.require(caller, "webhook.use-own")
        await self._find(caller, key)
        return await self._store.deliveries(key, query)

    async def test(self, caller: Caller, key: str) -> WebhookTest:
        """Call a webhook at once; success ends a suspension."""
        found = await self._require_writable(caller, key)
        target = await self._store.target(key)
        text = TextTemplate.NOTICE_TEST.text()
        message = Message(
            event=TEST_EVENT,
            event_id=str(uuid.uuid4()),
            at=self._clock(),
            title=title_of(TEST_EVENT, target.language),
            text=text_of(text, target.language, ZoneInfo("UTC")),
            link="",
            coded=text.as_json(),
            domain=found.domain,
            user=caller.username,
        )
        entry = self._entry(caller, "webhook.test", fields_of(found))
        try:
            await self._calls.post(target, str(uuid.uuid4()), message)
        except CallFailed as error:
            await self._store.update(key, {}, entry, self._clock())
            return WebhookTest(is_delivered=False, error=str(error))
        await self._store.update(key, _RESUMED, entry, self._clock())
        return WebhookTest(is_delivered=True, error="")

    async def _scope(
        self, caller: Caller, spec: Mapping[str, Any]
    ) -> tuple[str | None, str | None]:
        """Return the owner and the domain of a new webhook."""
        scope, domain = spec.get("scope", "own"), spec.get("domain")
        if (scope == "domain") is not bool(domain):
            raise InvalidRequest("give domain if scope is domain, and only then", field="domain")
        if scope == "own":
            if caller.user_id is None:
                raise Forbidden(f"{caller.role} is a system component and has no webhooks")
            return caller.user_id, None
        authorizer.require(caller, "webhook.write")
        if domain:
            domain = (await self._domains.get(caller, domain)).name
        if not reaches(caller, "webhook.write", Target(domain=domain)):
            raise Forbidden("you may add webhooks only for your domain", action="webhook.write")
        return None, domain

    def _columns(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        values = {
            name: fields[name]
            for name in ("name", "language", "events", "is_enabled")
            if name in fields
        }
        if values.get("language", "en") not in LANGUAGES:
            raise InvalidRequest(
                f"language must be one of {', '.join(LANGUAGES)}", field="language"
            )
        for event in values.get("events", ()):
            if event not in EVENTS:
                raise InvalidRequest(f"there is no event {shown(event)!r}", field="events")
        if "url" in fields:
            url = check_url(fields["url"], self._targets, field="url")
            if url is None:
                raise InvalidRequest("the URL must not be empty", field="url")
            values["url_encrypted"] = self._secrets.encrypt(url)
            values["host"] = (urlsplit(url).hostname or "")[:255]
        return values

    async def _find(self, caller: Caller, key: str) -> Webhook:
        if "\0" in key:
            raise no_webhook(key)
        return await self._store.one(key, caller.user_id, _shared(caller))

    async def _require_writable(self, caller: Caller, key: str) -> Webhook:
        authorizer.require(caller, "webhook.use-own")
        found = await self._find(caller, key)
        if not found.is_own:
            authorizer.require(caller, "webhook.write", Target(domain=found.domain))
            authorizer.require_not_above(caller, "webhook.write", "webhook", found.changed_by_role)
        return found

    def _entry(self, caller: Caller, action: str, values: Mapping[str, Any], **details: Any) -> Any:
        facts = {"name": values["name"], "host": values["host"], **details}
        return self._audit.entry(caller, action, values["id"], domain=values["domain"], **facts)


def _shared(caller: Caller) -> Visibility | None:
    """Return which webhooks of administrators the caller may read; None: no webhooks."""
    if reach(caller.role, "webhook.read") is Reach.NONE:
        return None
    return authorizer.visibility(caller, "webhook.read")
