"""`/webhooks`: webhooks of the caller and of administrators, and their deliveries."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic.functional_validators import AfterValidator

from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications import records
from bai_services.core.notifications.webhooks import MAX_NAME_CHARS
from bai_services.core.sessions.callbacks import MAX_URL

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, readable

_TAG = "webhooks"

WebhookName = Annotated[
    str,
    StringConstraints(max_length=MAX_NAME_CHARS, strip_whitespace=True),
    AfterValidator(readable),
]
UrlText = Annotated[str, StringConstraints(max_length=MAX_URL, pattern=r"^[^\x00]*$")]
EventNames = Annotated[list[NameText], Field(max_length=100)]


class WebhookChange(Body):
    """``events``: for webhooks of administrators. A new ``url``, or ``is_enabled``, ends a
    suspension.
    """

    name: WebhookName | None = None
    url: UrlText | None = None
    language: NameText | None = None
    events: EventNames | None = None
    is_enabled: bool | None = None


class NewWebhook(Body):
    """``scope``: ``own`` (the default), ``domain`` with the name in ``domain``, or ``all`` for the
    whole installation. ``kind``: ``json``, or ``slack`` for services that accept Slack's format.
    """

    url: UrlText
    kind: Literal["json", "slack"] = "json"
    name: WebhookName = ""
    scope: Literal["own", "domain", "all"] = "own"
    domain: NameText | None = None
    language: NameText = "en"
    events: EventNames = []


class Webhook(ResponseModel):
    """``failures``: number of consecutive failed attempts. ``dropped``: deliveries that were not
    created because too many were waiting. ``changed_by_role``: role of the user who created or last
    changed the webhook; domain administrators cannot change webhooks of superadmins.
    """

    id: str
    created_at: datetime
    is_own: bool
    domain: str | None
    name: str
    kind: str
    host: str
    language: str
    events: list[str]
    is_enabled: bool
    failures: int
    suspended_at: datetime | None
    last_error: str
    last_delivered_at: datetime | None
    pending: int
    dropped: int
    changed_by_role: str


class CreatedWebhook(Webhook):
    """``secret``: key of the signatures; only this response contains it."""

    secret: str


class WebhookSecret(ResponseModel):
    id: str
    secret: str


class WebhookDelivery(ResponseModel):
    """``status``: pending, delivered or given-up."""

    id: str
    created_at: datetime
    event_id: str
    event: str
    text: str
    status: str
    attempts: int
    next_at: datetime | None
    finished_at: datetime | None
    last_error: str


class WebhookTest(ResponseModel):
    is_delivered: bool
    error: str


class WebhooksHandler(APIHandler):
    @operation(
        "List your webhooks and those that you administer",
        tag=_TAG,
        returns=Webhook,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.Webhook]:
        return await self.manager.notifications.webhooks.page(self.caller, query)

    @operation(
        "Create a webhook",
        tag=_TAG,
        body=NewWebhook,
        returns=CreatedWebhook,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewWebhook) -> records.CreatedWebhook:
        spec = body.given_fields()
        return await self.manager.notifications.webhooks.create(self.caller, spec)


class WebhookHandler(APIHandler):
    @operation("Read a webhook", tag=_TAG, returns=Webhook)
    async def get(self, key: str) -> records.Webhook:
        return await self.manager.notifications.webhooks.get(self.caller, key)

    @operation("Change a webhook", tag=_TAG, body=WebhookChange, returns=Webhook)
    async def patch(self, key: str, body: WebhookChange) -> records.Webhook:
        changes = body.given_fields()
        return await self.manager.notifications.webhooks.update(self.caller, key, changes)

    @operation("Delete a webhook", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.notifications.webhooks.delete(self.caller, key)


class WebhookSecretHandler(APIHandler):
    @operation("Replace the secret of a webhook", tag=_TAG, returns=WebhookSecret)
    async def post(self, key: str) -> records.WebhookSecret:
        return await self.manager.notifications.webhooks.renew_secret(self.caller, key)


class WebhookTestHandler(APIHandler):
    @operation("Send a test message to a webhook", tag=_TAG, returns=WebhookTest, is_expensive=True)
    async def post(self, key: str) -> records.WebhookTest:
        return await self.manager.notifications.webhooks.test(self.caller, key)


class WebhookDeliveriesHandler(APIHandler):
    @operation("List the deliveries to a webhook", tag=_TAG, returns=WebhookDelivery, is_list=True)
    async def get(self, key: str, query: ListQuery) -> Page[records.WebhookDelivery]:
        return await self.manager.notifications.webhooks.deliveries(self.caller, key, query)


ROUTES = [
    ("/webhooks", WebhooksHandler),
    (r"/webhooks/(?P<key>[^/]+)", WebhookHandler),
    (r"/webhooks/(?P<key>[^/]+)/secret", WebhookSecretHandler),
    (r"/webhooks/(?P<key>[^/]+)/test", WebhookTestHandler),
    (r"/webhooks/(?P<key>[^/]+)/deliveries", WebhookDeliveriesHandler),
]
