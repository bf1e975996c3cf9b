"""Server extension of a session: adds the panel's routes, and explains apps that are not
offered.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from tornado import web

from bai_labext.activity import Activity, ActivityHandler, note_writes
from bai_labext.app_proxy.handler import FAST_PATH_SETTING
from bai_labext.apps import apps, shared_apps
from bai_labext.apps.activity import AppActivity, activity_times
from bai_labext.apps.apps import Offer
from bai_labext.apps.arguments import Arguments
from bai_labext.apps.catalogue import AppKind
from bai_labext.apps.running_apps import LOG_MOST_BYTES, RunningApps
from bai_labext.fast_path import FastPath
from bai_labext.handlers import ROUTES
from bai_labext.manager_link import ManagerLink
from bai_labext.ports import named_ports
from bai_labext.sign_in_watch import watch
from bai_labext.tunnel import handler as tunnel
from bai_labext.tunnel import targets
from bai_labext.tunnel.commands import Commands
from bai_labext.tunnel.sshd import SshHandler, SshServer


class NotOfferedHandler(JupyterHandler):
    """The address of an app that this session does not offer: shows the reason instead of a 404
    page.
    """

    def initialize(self, refusal: str) -> None:
        self.refusal = refusal

    @web.authenticated
    def get(self) -> None:
        self.set_status(404)
        # Not HTTPError, because Jupyter's page for a 404 omits the reason.
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
    at_work = url_path_join(base_url, "bai", "api", "session", "activity")
    handlers.append((at_work, ActivityHandler, {"activity": activity}))
    note_writes(web_app, running.uses)
    handlers += _tunnel(server_app, base_url, link, running.uses)
    for offer in offers:
        if not offer.is_offered and offer.app.kind is AppKind.PROCESS:
            pattern = url_path_join(base_url, offer.app.name) + r"(?:/.*)?"
            handlers.append((pattern, NotOfferedHandler, {"refusal": offer.refusal}))
            server_app.log.info("bai_labext: %s", offer.refusal)
    web_app.add_handlers(".*$", handlers)
    # jupyter-server-proxy is loaded after this extension, but before the loop runs.
    server_app.io_loop.add_callback(running.watch)
    server_app.io_loop.add_callback(shared_apps.serve, web_app, running, shared["link"])
    server_app.io_loop.add_callback(running.stop_idle)
    server_app.io_loop.add_callback(activity.keep_reporting)
    if (watched := watch(server_app.identity_provider)) is not None:
        server_app.io_loop.add_callback(watched.run)


def with_ports(offers: list[Offer], environ: Mapping[str, str]) -> list[Offer]:
    """Return the offers with the named ports; a label's port takes precedence over the
    catalogue's.
    """
    named = named_ports(environ)
    titles = {offer.app.title for offer in named}
    kept = [o for o in offers if o.app.kind is not AppKind.PORT or o.app.title not in titles]
    return [*kept, *named]


def idle_seconds(environ: Mapping[str, str]) -> float:
    """Return how long an app may be unused: ``BAI_APP_IDLE_MINUTES``, one hour if not set."""
    text = environ.get("BAI_APP_IDLE_MINUTES", "60")
    return 60.0 * int(text) if text.isdecimal() else 0.0


def log_bytes(environ: Mapping[str, str]) -> int:
    """Return the maximum size of an app's log: ``BAI_APP_LOG_MIB``, 8 MiB if not set."""
    text = environ.get("BAI_APP_LOG_MIB", "")
    return int(text) * 2**20 if text.isdecimal() and int(text) else LOG_MOST_BYTES


def _tunnel(
    server_app: Any, base_url: str, link: ManagerLink, uses: AppActivity
) -> list[tuple[Any, ...]]:
    server = SshServer(os.environ, link)
    token = server_app.identity_provider.token
    joined = targets.Targets(
        {
            "http": targets.jupyter(server_app.port, base_url, token),
            "ssh": server.serve,
            "exec": Commands(apps.home(os.environ)).serve,
        },
        uses.used,
    )
    path, handler, arguments = tunnel.route(joined, os.environ)
    return [
        (url_path_join(base_url, "bai", path), handler, arguments),
        (url_path_join(base_url, "bai", "api", "ssh"), SshHandler, {"server": server}),
    ]
