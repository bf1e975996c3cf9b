"""Report the settings of the Hub, its authenticator, spawner and engines to the manager."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from jupyterhub.app import JupyterHub
from traitlets.config import Configurable

from bai_services.core.errors import BaiError, Unavailable
from bai_services.core.operations.component_settings import ReportedSetting
from bai_services.service_client import ServiceClient
from bai_services.trait_settings import as_json, options_of, settings_of

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
# The settings of JupyterHub that matter to users and administrators of bai-hub.
HUB_OPTIONS = (
    "active_server_limit",
    "allow_named_servers",
    "authenticator_class",
    "bind_url",
    "cleanup_servers",
    "concurrent_spawn_limit",
    "cookie_max_age_days",
    "default_url",
    "hub_bind_url",
    "hub_ip",
    "hub_port",
    "oauth_token_expires_in",
    "public_url",
    "spawner_class",
    "subdomain_host",
    "token_expires_in_max_seconds",
)


def hub_settings(app: JupyterHub, own: Sequence[Configurable]) -> list[ReportedSetting]:
    """Return the settings of a JupyterHub application; ``own``: objects of the authenticator.

    A spawner class that is not bai-hub's has no ``configurables`` and is not reported.
    """
    of_spawner = getattr(app.spawner_class, "configurables", None)
    parts = [*own, *(of_spawner(app.config) if of_spawner else [])]
    return [*options_of(app, HUB_OPTIONS), *settings_of(parts)]


async def report(client: ServiceClient, settings: Sequence[ReportedSetting]) -> None:
    """Send the settings; retry until the manager responds, because it starts after the Hub."""
    body = {"settings": as_json(settings)}
    backoff = FIRST_BACKOFF_SECONDS
    while True:
        try:
            await client.put("/component-settings/hub", body)
            return
        except Unavailable as error:
            log.debug("the settings of the Hub are not reported yet: %s", error)
        except BaiError as error:
            log.warning("the manager rejects the settings of the Hub: %s", error)
            return
        await asyncio.sleep(backoff)
        backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
