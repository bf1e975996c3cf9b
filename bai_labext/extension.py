"""Wiring of the server extension: routes, background loops and the fast path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from tornado import web

from bai_labext.activity import Activity, ActivityHandler, count_writes_as_use
from bai_labext.app_proxy.handler import FAST_PATH_SETTING
from bai_labext.apps import apps, shared_apps
from bai_labext.apps.activity import AppActivity, activity_times
from bai_labext.apps.apps import Offer
from bai_labext.apps.arguments import Arguments
from bai_labext.apps.running_apps import MAX_LOG_BYTES, RunningApps
from bai_labext.fast_path import FastPath
from bai_labext.handlers import ROUTES
from bai_labext.manager_link import ManagerLink
from bai_labext.ports import named_ports
from bai_labext.preparation.handlers import EVENT, EVENT_SCHEMA, PreparationHandler
from bai_labext.preparation.preparation import Preparation
from bai_labext.sign_in_watch import watch_sign_ins
from bai_labext.tunnel import handler as tunnel
from bai_labext.tunnel import targets
from bai_labext.tunnel.commands import Commands
from bai_labext.tunnel.sshd import SshHandler, SshServer
from bai_services.core.apps.catalogue import AppKind
from bai_services.core.user_input import read_whole


class NotOfferedHandler(JupyterHandler):
    """Page at the address of an app that this session does not offer: shows the reason."""

    def initialize(self, refusal: str) -> None:
        self.refusal = refusal

    @web.authenticated
    def get(self) -> None:
        self.set_status(404)
        # Not HTTPError, because Jupyter's page for status 404 does not show the message.
        page = {"status_code": 404, "status_message": "Not offered", "message": self.refusal}
        self.finish(self.render_template("error.html", **page))  # type: ignore[no-untyped-call]


def load(server_app: Any) -> None:
    """Add the extension's handlers to a Jupyter server, and the fast path in front of it."""
    web_app = server_app.web_app
    fast_path = FastPath(parent=server_app)
    if fast_path.enabled:
        fast_path.install()
        web_app.settings[FAST_PATH_SETTING] = fast_path
    base_url = web_app.settings["base_url"]
    offers = with_ports(apps.offers(), os.environ)
    home = apps.home(os.environ)
    running = RunningApps(
        web_app,
        offers,
        home,
        Arguments(os.environ, home),
        AppActivity(lambda: activity_times(web_app.settings)),
        idle_seconds(os.environ),
        log_bytes(os.environ),
    )
    link = ManagerLink(os.environ)
    shared = {"link": link, "running": running}
    handlers: list[tuple[Any, ...]] = [
        (url_path_join(base_url, "bai", "api", path), handler, shared) for path, handler in ROUTES
    ]
    activity = Activity(web_app.settings, running.uses, link)
    activity_path = url_path_join(base_url, "bai", "api", "session", "activity")
    handlers.append((activity_path, ActivityHandler, {"activity": activity}))
    preparation = _preparation(server_app, link, home)
    preparation_path = url_path_join(base_url, "bai", "api", "preparation")
    handlers.append((preparation_path, PreparationHandler, {"preparation": preparation}))
    count_writes_as_use(web_app, running.uses)
    handlers += _tunnel(server_app, base_url, link, running.uses)
    for offer in offers:
        if not offer.is_offered and offer.app.kind is AppKind.PROCESS:
            pattern = url_path_join(base_url, offer.app.name) + r"(?:/.*)?"
            handlers.append((pattern, NotOfferedHandler, {"refusal": offer.refusal}))
            server_app.log.info("bai_labext: %s", offer.refusal)
    web_app.add_handlers(".*$", handlers)
    # Callbacks run when the loop starts; jupyter-server-proxy has then also been loaded.
    server_app.io_loop.add_callback(running.record_uses)
    server_app.io_loop.add_callback(shared_apps.serve, web_app, running, link)
    server_app.io_loop.add_callback(running.stop_idle)
    server_app.io_loop.add_callback(activity.keep_reporting)
    server_app.io_loop.add_callback(preparation.run)
    if (sign_in_watch := watch_sign_ins(server_app.identity_provider)) is not None:
        server_app.io_loop.add_callback(sign_in_watch.run)


def _preparation(server_app: Any, link: ManagerLink, home: str) -> Preparation:
    logger = server_app.event_logger
    logger.register_event_schema(EVENT_SCHEMA)

    def announce() -> None:
        logger.emit(schema_id=EVENT, data={"is_changed": True})

    settings = server_app.web_app.settings
    return Preparation(link, Path(home), os.environ, settings, announce)


def with_ports(offers: list[Offer], environ: Mapping[str, str]) -> list[Offer]:
    """Return the offers with the named ports added.

    A named port replaces an offered port with the same title.
    """
    named = named_ports(environ)
    titles = {offer.app.title for offer in named}
    kept = [o for o in offers if o.app.kind is not AppKind.PORT or o.app.title not in titles]
    return [*kept, *named]


def idle_seconds(environ: Mapping[str, str]) -> float:
    """Return the idle timeout of apps in seconds; 0: no timeout.

    ``BAI_APP_IDLE_MINUTES`` sets it; the default is 60 minutes.
    """
    minutes = read_whole(environ.get("BAI_APP_IDLE_MINUTES", "60"))
    return 60.0 * (minutes or 0)


def log_bytes(environ: Mapping[str, str]) -> int:
    """Return the maximum size of an app's log in bytes.

    ``BAI_APP_LOG_MIB`` sets it; the default is ``MAX_LOG_BYTES``.
    """
    mib = read_whole(environ.get("BAI_APP_LOG_MIB", ""))
    return mib * 2**20 if mib else MAX_LOG_BYTES


def _tunnel(
    server_app: Any, base_url: str, link: ManagerLink, uses: AppActivity
) -> list[tuple[Any, ...]]:
    ssh_server = SshServer(os.environ, link)
    token = server_app.identity_provider.token
    tunnel_targets = targets.Targets(
        {
            "http": targets.jupyter(server_app.port, base_url, token),
            "ssh": ssh_server.serve,
            "exec": Commands(apps.home(os.environ)).serve,
        },
        uses.record_use,
    )
    path, handler, arguments = tunnel.route(tunnel_targets, os.environ)
    return [
        (url_path_join(base_url, "bai", path), handler, arguments),
        (url_path_join(base_url, "bai", "api", "ssh"), SshHandler, {"server": ssh_server}),
    ]
