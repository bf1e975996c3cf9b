"""`bai-gateway`: settings and composition of the gateway."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import secrets
import signal
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path

import uvloop
from traitlets import Enum, Integer, TraitError, Unicode, default
from traitlets.config import Application, Config
from traitlets.config.loader import DeferredConfigString

from bai_services import __version__, tracing
from bai_services.client import Token
from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.service_client import ServiceClient
from bai_services.trusted_proxies import TrustedProxies

from .haproxy.configuration import Settings
from .haproxy.engine import Haproxy
from .health import HealthChecks
from .limits import MAX_CLIENT_CONNECTIONS
from .manager_link import Reports, RouteUpdates
from .routes import Routes
from .server import GatewayServer

log = logging.getLogger("bai_services.gateway")

# Time limit for the last report of a gateway that stops.
LAST_REPORT_SECONDS = 5.0
# Number of open files that are needed in addition to the connections of clients and replicas.
OTHER_FILES = 500

# Maps a trait to the environment variable that sets it.
ENVIRONMENT: Mapping[str, str] = {
    "manager_url": "BAI_MANAGER_URL",
    "token_file": "BAI_GATEWAY_TOKEN_FILE",
    "host": "BAI_GATEWAY_HOST",
    "port": "BAI_GATEWAY_PORT",
    "path_prefix": "BAI_GATEWAY_PATH_PREFIX",
    "trusted_proxies": "BAI_TRUSTED_PROXIES",
    "metrics_token_file": "BAI_METRICS_TOKEN_FILE",
    "domain": "BAI_GATEWAY_DOMAIN",
    "engine": "BAI_GATEWAY_ENGINE",
}


class GatewayApp(Application):
    """Proxy in front of the replicas of all endpoints. Several gateways may run."""

    name = "bai-gateway"
    version = __version__
    description = __doc__
    aliases = {
        "manager": "GatewayApp.manager_url",
        "host": "GatewayApp.host",
        "port": "GatewayApp.port",
        "engine": "GatewayApp.engine",
        "config": "GatewayApp.config_file",
        "log-level": "Application.log_level",
    }

    config_file = Unicode(
        help="Python file with settings (`c.GatewayApp…`). Empty: no file is read."
    ).tag(config=True)
    manager_url = Unicode(
        help="URL of the manager itself, not of the proxy. Environment: `BAI_MANAGER_URL`."
    ).tag(config=True)
    token_file = Unicode(
        help="File with the secret shared by all gateways. Environment: `BAI_GATEWAY_TOKEN_FILE`."
    ).tag(config=True)
    host = Unicode(
        "127.0.0.1",
        help="Address on which the gateway listens. Environment: `BAI_GATEWAY_HOST`.",
    ).tag(config=True)
    port = Integer(
        8092,
        min=0,
        max=65535,
        help="Port on which the gateway listens. Environment: `BAI_GATEWAY_PORT`.",
    ).tag(config=True)
    path_prefix = Unicode(
        "/services/bai-serve",
        help="Path before the names of endpoints. Environment: `BAI_GATEWAY_PATH_PREFIX`.",
    ).tag(config=True)
    trusted_proxies = Unicode(
        "own",
        help="Networks and addresses of proxies whose `X-Forwarded-For` is trusted, comma "
        "separated; `own` stands for this machine. Environment: `BAI_TRUSTED_PROXIES`.",
    ).tag(config=True)
    metrics_token_file = Unicode(
        help="File with the token with which Prometheus reads `/metrics`. Empty: requests are "
        "rejected. Environment: `BAI_METRICS_TOKEN_FILE`."
    ).tag(config=True)
    domain = Unicode(
        help="Domain of the endpoints' own host names: with `serve.example.org`, the endpoint "
        "`chat` is also at `chat.serve.example.org`. A reverse proxy must send all host names "
        "below the domain to the gateway. Empty: endpoints have no host names. Environment: "
        "`BAI_GATEWAY_DOMAIN`."
    ).tag(config=True)
    engine = Enum(
        ["builtin", "haproxy"],
        default_value="builtin",
        help="`haproxy`: HAProxy 2.6 or later accepts the requests, for heavy traffic. "
        "Environment: `BAI_GATEWAY_ENGINE`.",
    ).tag(config=True)
    haproxy_pools = Integer(
        64,
        min=1,
        max=2000,
        help="Maximum number of revisions that HAProxy serves at the same time. The gateway itself "
        "serves all others.",
    ).tag(config=True)
    haproxy_slots = Integer(
        16,
        min=1,
        max=1000,
        help="Maximum number of replicas of a revision that HAProxy serves. The gateway itself "
        "serves an endpoint with more replicas.",
    ).tag(config=True)
    haproxy_threads = Integer(
        0, min=0, max=64, help="Threads of HAProxy. 0: one for each processor."
    ).tag(config=True)
    haproxy_queue_seconds = Integer(
        60,
        min=1,
        max=3600,
        help="How long requests wait in HAProxy while all replicas are busy.",
    ).tag(config=True)
    max_connections = Integer(
        MAX_CLIENT_CONNECTIONS, min=1, help="Maximum number of connections of clients."
    ).tag(config=True)
    max_owner_requests = Integer(
        0,
        min=0,
        help="Maximum number of client connections that wait for or receive a response of one "
        "owner's endpoints. Further requests get 503, so that one owner cannot use up the "
        "connections of other owners. An owner also never has more of these connections than there "
        "are free connections. 0: half of `max_connections`.",
    ).tag(config=True)
    stop_grace_seconds = Integer(30, min=0, help="Seconds for running requests after SIGTERM.").tag(
        config=True
    )

    def initialize(self, argv: list[str] | None = None) -> None:
        """Read the environment, the configuration file and the command line.

        The command line overrides the file, and the file overrides the environment.
        """
        self.update_config(from_environment(os.environ))
        self.parse_command_line(argv)
        if self.config_file:
            self.load_config_file(self.config_file)
            self.update_config(self.cli_config)

    @default("log_level")
    def _default_log_level(self) -> int:
        return logging.INFO

    def start(self) -> None:
        logging.basicConfig(
            level=int(str(self.log_level)),
            format="[%(levelname).1s %(asctime)s %(name)s] %(message)s",
        )
        tracing.set_up("bai-gateway", os.environ)
        # Collect garbage rarely: requests create no reference cycles, so frequent collections would
        # find nothing.
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)
        uvloop.run(self.run())

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        max_connections = raise_open_files(int(self.max_connections))
        server = GatewayServer(
            Routes(),
            prefix=self.path_prefix.rstrip("/").encode(),
            metrics_token=self._metrics_token(),
            domain=self.domain.strip(".").lower().encode(),
            proxies=self._proxies(),
            max_connections=max_connections,
            max_owner_requests=int(self.max_owner_requests) or max(1, max_connections // 2),
        )
        haproxy = None
        if self.engine == "haproxy":
            haproxy = Haproxy(server, self._haproxy_settings(server), self.host, int(self.port))
        async with ServiceClient(self.manager_url, Token(self._read_secret())) as client:
            grace_seconds = float(self.stop_grace_seconds)
            await run_gateway(
                server, client, self.host, int(self.port), stop, grace_seconds, haproxy
            )

    def _haproxy_settings(self, server: GatewayServer) -> Settings:
        return Settings(
            prefix=server.prefix.decode(),
            domain=server.domain.decode(),
            pools=int(self.haproxy_pools),
            slots=int(self.haproxy_slots),
            threads=int(self.haproxy_threads),
            queue_seconds=int(self.haproxy_queue_seconds),
            max_connections=server.max_connections,
            max_owner_requests=server.max_owner_requests,
        )

    def _proxies(self) -> TrustedProxies:
        try:
            return TrustedProxies.parse(self.trusted_proxies.split(","))
        except ValueError as error:
            raise InvalidRequest(f"BAI_TRUSTED_PROXIES: {error}") from None

    def _metrics_token(self) -> str:
        try:
            return (
                Path(self.metrics_token_file).read_text().strip() if self.metrics_token_file else ""
            )
        except OSError as error:
            raise InvalidRequest(f"BAI_METRICS_TOKEN_FILE cannot be read: {error}") from error

    def _read_secret(self) -> str:
        if not self.manager_url:
            raise InvalidRequest(
                "set BAI_MANAGER_URL (GatewayApp.manager_url) to the manager's URL"
            )
        try:
            secret = Path(self.token_file).read_text().strip() if self.token_file else ""
        except OSError as error:
            raise InvalidRequest(f"BAI_GATEWAY_TOKEN_FILE cannot be read: {error}") from error
        if not secret:
            raise InvalidRequest(
                "set BAI_GATEWAY_TOKEN_FILE (GatewayApp.token_file) to the file with the gateways' "
                "secret"
            )
        return secret


async def run_gateway(
    server: GatewayServer,
    client: ServiceClient,
    host: str,
    port: int,
    stop: asyncio.Event,
    grace_seconds: float = 0,
    haproxy: Haproxy | None = None,
) -> None:
    """Serve until ``stop`` is set; then wait for running requests and send the last report."""
    routes = server.routes
    gateway_id = secrets.token_hex(8)
    health = HealthChecks(routes, lambda: replica_failed(), lambda: replicas_changed())
    reports = Reports(client, gateway_id, routes, server.measures, health)
    # Report the end of a replica's last request at once, so that the manager stops a draining
    # replica without delay.
    server.on_drained = reports.wake
    server.on_waiting = reports.request_waits

    def replicas_changed() -> None:
        if haproxy is not None:
            haproxy.wake()

    def replica_failed() -> None:
        reports.wake()
        replicas_changed()

    def routes_changed() -> None:
        health.wake()
        reports.wake()
        replicas_changed()

    routes.on_change = routes_changed
    parts: list[Coroutine[None, None, None]] = []
    if haproxy is None:
        await server.start(host, port)
    else:
        await haproxy.start()
        parts = [haproxy.run(), haproxy.supervise()]
    log.info("gateway %s listens on %s:%d", gateway_id, host, server.port)
    parts += [RouteUpdates(client, routes).run(), health.run(), reports.run()]
    tasks = [asyncio.create_task(part) for part in parts]
    waiter = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {waiter}:
            # A failed task is a bug: the process ends, and its supervisor restarts it.
            task.result()
        if haproxy is not None:
            for task in tasks[:2]:
                task.cancel()
            await haproxy.stop(grace_seconds)
        await server.stop(grace_seconds)
    finally:
        for task in (waiter, *tasks):
            task.cancel()
        await asyncio.gather(waiter, *tasks, return_exceptions=True)
    try:
        async with asyncio.timeout(LAST_REPORT_SECONDS):
            await reports.send()
    except (BaiError, TimeoutError) as error:
        log.warning("the last report is lost: %s", error)


def raise_open_files(max_connections: int) -> int:
    """Raise this process's limit of open files; return the resulting maximum of client connections.

    Each client needs two files. Without free files, no replica could be reached.
    """
    wanted = 2 * max_connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return max_connections
    permitted = max(1, (soft - OTHER_FILES) // 2)
    log.warning("the limit of open files permits only %d connections of clients", permitted)
    return permitted


def from_environment(environ: Mapping[str, str]) -> Config:
    """Return the configuration that the environment variables set."""
    config = Config()
    for trait, name in ENVIRONMENT.items():
        if text := environ.get(name):
            config.GatewayApp[trait] = DeferredConfigString(text)
    return config


def main(argv: list[str] | None = None) -> None:
    """Run the gateway; report an invalid configuration on stderr and exit with code 2."""
    try:
        GatewayApp.launch_instance(argv)
    except (BaiError, TraitError) as error:
        print(f"bai-gateway: {error}", file=sys.stderr)
        sys.exit(2)
