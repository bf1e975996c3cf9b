"""Build the services of notifications."""

from __future__ import annotations

from dataclasses import dataclass

from bai_services.db.notifications.webhooks import WebhookStore

from ..accounts.domains import Domains
from ..accounts.keypair_secrets import KeypairSecrets
from ..context import ManagerContext
from ..folders.storage_hosts import StorageHosts
from ..mail.mails import Mails
from ..scheduling.lease import Lease
from ..sessions.callback_calls import CallbackCalls
from ..settings import Settings
from .delivery import WebhookCalls, WebhookDeliveries
from .inbox import Inbox
from .mails import NotificationMails
from .outbox import Outbox
from .texts import Links
from .webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class NotificationServices:
    """Services for notifications and webhooks."""

    inbox: Inbox
    webhooks: Webhooks
    deliveries: WebhookDeliveries
    outbox: Outbox

    def start(self) -> None:
        self.outbox.start()
        self.deliveries.start()

    async def stop(self) -> None:
        await self.outbox.stop()
        await self.deliveries.stop()


def notification_services(
    context: ManagerContext,
    settings: Settings,
    *,
    domains: Domains,
    hosts: StorageHosts,
    mails: Mails,
    lease: Lease,
) -> NotificationServices:
    """Build the services and pass them their dependencies."""
    encryption = KeypairSecrets(settings.key)
    links = Links(settings.public_origin, settings.base_url)
    targets = settings.callback_targets
    calls = WebhookCalls(CallbackCalls(targets), encryption, context.clock)
    store = WebhookStore(context.database)
    deliveries = WebhookDeliveries(store, calls, links, context.clock, lease)
    notification_mails = NotificationMails(context.database, mails, links, context.clock)
    return NotificationServices(
        inbox=Inbox(context, mails),
        webhooks=Webhooks(context, domains, encryption, calls, targets),
        deliveries=deliveries,
        outbox=Outbox(
            context, hosts, notification_mails, settings.home, lease.hold, deliveries.wake
        ),
    )
