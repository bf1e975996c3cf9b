"""State, start and stop of a session's apps.

jupyter-server-proxy manages the processes; it also starts an app when a user opens its address.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_server.utils import url_path_join
from jupyter_server_proxy.handlers import ProxyHandler
from simpervisor.process import KilledProcessError
from tornado.httputil import HTTPServerRequest
from tornado.routing import Rule
from tornado.web import Application, HTTPError

from bai_labext.apps.activity import AppActivity, activity_recording_handler, forget_ended_process
from bai_labext.apps.apps import Offer, log_path
from bai_labext.apps.arguments import Arguments
from bai_labext.apps.catalogue import ANY_PORT, App
from bai_labext.listeners import Listener, listeners
from bai_labext.ports import is_reachable, port_problem
from bai_services.core.apps.catalogue import AppKind
from bai_services.core.errors import Conflict, NotFound

STOP_TIMEOUT_SECONDS = 10.0
START_POLL_INTERVAL_SECONDS = 0.25
# A start has failed when jupyter-server-proxy has restarted the process this many times.
MAX_RESTARTS = 3
IDLE_CHECK_INTERVAL_SECONDS = 30.0
LOG_TAIL_BYTES = 16 * 1024
MAX_LOG_BYTES = 8 * 2**20
# A log that exceeds its maximum size is truncated to 1/8 of that size.
TRUNCATED_LOG_DIVISOR = 8


class AppState(StrEnum):
    BUILTIN = "builtin"  # served by the Jupyter server itself
    MISSING = "missing"  # not offered by this session
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ProxyRoute:
    """The route by which jupyter-server-proxy serves an app."""

    rule: Rule

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.rule.target_kwargs

    @property
    def handler(self) -> Callable[..., Any]:
        handler: Callable[..., Any] = self.rule.target
        return handler

    @property
    def state(self) -> dict[str, Any]:
        """The state of jupyter-server-proxy for the app, shared by all requests."""
        state: dict[str, Any] = self.arguments["state"]
        return state


class RunningApps:
    """The apps of one Jupyter server."""

    def __init__(
        self,
        web_app: Application,
        offers: Sequence[Offer],
        home: str,
        arguments: Arguments,
        uses: AppActivity,
        idle_seconds: float = 0,
        log_bytes: int = MAX_LOG_BYTES,
    ) -> None:
        self._web_app = web_app
        self._offers = {offer.app.name: offer for offer in offers}
        self._home = home
        self._arguments = arguments
        self._uses = uses
        self._idle_seconds = idle_seconds
        self._log_bytes = log_bytes
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, str] = {}
        # The arguments with which each running app was started.
        self._started_with: dict[str, dict[str, str]] = {}

    def describe(self) -> list[dict[str, Any]]:
        """Return the apps of the catalogue and the named ports, each with its state, for JSON."""
        listening = listeners()
        return [self._describe(name, listening) for name in self._offers]

    def offer(self, name: str) -> Offer:
        """Return the offer of an app by name.

        Raises
        ------
        NotFound
            If there is no such app.
        """
        if name not in self._offers:
            raise NotFound(f"there is no app {name!r} in the catalogue")
        return self._offers[name]

    def state(self, name: str, listening: Sequence[Listener] | None = None) -> AppState:
        """Return the state of an app.

        ``listening`` contains the listening sockets; None: they are queried if needed.
        """
        offer = self.offer(name)
        if not offer.is_offered:
            return AppState.MISSING
        if offer.app.kind in (AppKind.BUILTIN, AppKind.TCP):
            return AppState.BUILTIN
        if offer.app.kind is AppKind.PORT:
            sockets = listeners() if listening is None else listening
            return AppState.RUNNING if is_reachable(offer.port, sockets) else AppState.STOPPED
        route = self.proxy_route(name)
        if self._is_starting(name) or (route and _is_locked(route.state)):
            return AppState.STARTING
        process = None if route is None else route.state.get("proc")
        if process is not None and process.running:
            return AppState.RUNNING
        return AppState.FAILED if name in self._failures else AppState.STOPPED

    async def start(
        self, name: str, request: HTTPServerRequest, chosen: Mapping[str, Any], restart: bool
    ) -> None:
        """Start an app in the background with the ``chosen`` arguments.

        Starts nothing if jupyter-server-proxy does not manage the app's process. An app that is
        already running or starting is restarted only if ``restart`` is set. If the app is started
        or restarted, the arguments are stored for later starts.

        Raises
        ------
        NotFound
            If there is no such app.
        Conflict
            If this session does not offer the app; if the user must start the app, but nothing
            listens on its port; or if ``restart`` is not set, but the app is running with other
            arguments.
        InvalidRequest
            If an argument is missing, unknown or invalid.
        """
        offer = self.offer(name)
        if not offer.is_offered:
            raise Conflict(offer.refusal)
        if offer.app.kind is AppKind.PORT:
            if self.state(name) is not AppState.RUNNING:
                raise Conflict(self._port_problem(offer, listeners()))
            return
        route = self.proxy_route(name)
        if route is None:
            return
        is_up = self.state(name) in (AppState.STARTING, AppState.RUNNING)
        if is_up and not restart:
            arguments = self._arguments.validate(offer.app, chosen)
            if chosen and arguments != self._started_with.get(name, arguments):
                raise Conflict(f"{offer.app.title} is running with other arguments; restart it")
            return
        self._arguments.choose(offer.app, chosen)
        self._arguments.check(offer.app)
        if is_up:
            await self.stop(name)
        self._failures.pop(name, None)
        self._starts[name] = asyncio.create_task(self._start(name, route, request))

    async def stop(self, name: str) -> None:
        """Stop a running or starting app with SIGTERM, and with SIGKILL after 10 s.

        Raises
        ------
        NotFound
            If there is no such app.
        Conflict
            If the app is not a process that this server starts.
        """
        offer = self.offer(name)
        if offer.is_offered and offer.app.kind is not AppKind.PROCESS:
            raise Conflict(
                f"{offer.app.title} is not a process that the session starts; stop its program "
                "where you started it"
            )
        self._failures.pop(name, None)
        route = self.proxy_route(name)
        process = None if route is None else route.state.get("proc")
        if route is None or process is None:
            return
        if process.running:
            await _end(process)
        # If a start is in progress, it fails now, and may have removed the process from the state.
        if task := self._starts.get(name):
            await asyncio.wait([task])
            self._failures.pop(name, None)
        if route.state.get("proc") is process:
            del route.state["proc"]
        # A process killed by a signal leaves its socket behind, so the next start uses another.
        route.state.pop("unix_socket", None)
        route.state.pop("port", None)

    def log(self, name: str) -> str:
        """Return the end of an app's output since its last start."""
        self.offer(name)
        path = Path(log_path(self._home, name))
        try:
            with open(path, "rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - LOG_TAIL_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def record_uses(self) -> None:
        """Make the handlers of jupyter-server-proxy record uses and starts of apps.

        Call this only when jupyter-server-proxy has been loaded.
        """
        for name, offer in self._offers.items():
            route = self.proxy_route(name)
            if route is not None:
                route.rule.target = activity_recording_handler(
                    route.rule.target, offer.app, self._uses, partial(self._record_start, offer.app)
                )
        for rule in _rules(self._web_app):
            target = rule.target
            is_port = isinstance(target, type) and issubclass(target, ProxyHandler)
            if is_port and "state" not in rule.target_kwargs:
                rule.target = activity_recording_handler(target, ANY_PORT, self._uses)

    def _record_start(self, app: App) -> None:
        """Remember the arguments of a start; opening the app's URL also starts the app."""
        self._started_with[app.name] = self._arguments.of(app)

    @property
    def offers(self) -> Sequence[Offer]:
        return list(self._offers.values())

    @property
    def uses(self) -> AppActivity:
        return self._uses

    async def stop_idle(self) -> None:
        """In a loop, stop apps whose idle timeout has expired, and truncate long logs of apps."""
        while True:
            await asyncio.sleep(IDLE_CHECK_INTERVAL_SECONDS)
            for name in self.idle():
                await self.stop(name)
            for name in self._offers:
                path = Path(log_path(self._home, name))
                await asyncio.to_thread(truncate_log, path, self._log_bytes)

    def idle(self) -> list[str]:
        """Return the running apps that may be stopped now: their idle timeout has expired, and they
        have no open websocket.
        """
        if not self._idle_seconds:
            return []
        return [
            name
            for name, offer in self._offers.items()
            if offer.app.stops_when_idle
            and self.state(name) is AppState.RUNNING
            and not self._uses.of(name).websockets
            and (self._uses.idle_seconds(name) or 0) > self._idle_seconds
        ]

    def _describe(self, name: str, listening: Sequence[Listener]) -> dict[str, Any]:
        offer = self._offers[name]
        app, state = offer.app, self.state(name, listening)
        message = offer.refusal or self._failures.get(name, "")
        if state is AppState.STOPPED and app.kind is AppKind.PORT:
            message = self._port_problem(offer, listening)
        values = self._arguments.of(app)
        temporary = self._arguments.temporary(app)
        used_at = self._uses.of(name).at
        return {
            "name": name,
            "title": app.title,
            "category": app.category,
            "kind": app.kind,
            "icon": f"server-proxy/icon/{name}" if app.icon_path else "",
            "path": app.path.format(port=offer.port),
            "ready_path": app.ready_path.format(port=offer.port),
            "port": offer.port or None,
            "is_offered": offer.is_offered,
            "state": state,
            "message": message,
            "arguments": [
                {
                    "name": each.name,
                    "title": each.title,
                    "kind": each.kind,
                    "value": values[each.name],
                    "is_required": not each.default,
                    "is_temporary": each.name in temporary,
                }
                for each in app.arguments
            ],
            "used_at": None if used_at is None else used_at.isoformat(),
        }

    def _port_problem(self, offer: Offer, listening: Sequence[Listener]) -> str:
        named_ports = [each.port for each in self._offers.values()]
        return port_problem(offer.port, listening, named_ports)

    async def _start(self, name: str, route: ProxyRoute, request: HTTPServerRequest) -> None:
        forget_ended_process(route.state)
        # The handler requires a request. Pass the request for the start; the handler does not
        # respond to it.
        handler = route.handler(self._web_app, request, **route.arguments)
        starting = asyncio.ensure_future(handler.ensure_process())
        pids: set[int] = set()
        while not (await asyncio.wait([starting], timeout=START_POLL_INTERVAL_SECONDS))[0]:
            process = route.state.get("proc")
            if process is None or process.proc is None:
                continue
            pids.add(process.pid)
            if process.returncode == 0 or len(pids) > MAX_RESTARTS:
                # Until the app's timeout, jupyter-server-proxy would restart a failing process, or
                # wait for a process that has ended with exit code 0.
                process._killed = True
                starting.cancel()
        app = self._offers[name].app
        title = app.title
        try:
            await starting
        except asyncio.CancelledError:
            self._failures[name] = f"{title} ended before it responded; see its log"
        except HTTPError:
            self._failures[name] = (
                f"{title} did not respond within {app.timeout_seconds:.0f} s; see its log"
            )
        except (OSError, KilledProcessError) as error:
            self._failures[name] = f"{title} cannot be started: {error}"

    def _is_starting(self, name: str) -> bool:
        task = self._starts.get(name)
        return task is not None and not task.done()

    def proxy_route(self, name: str) -> ProxyRoute | None:
        """Return the route of an app; None if jupyter-server-proxy does not serve it.

        Call this only when jupyter-server-proxy has been loaded; Jupyter loads it after this
        extension.
        """
        prefix = url_path_join(self._web_app.settings["base_url"], name)
        for rule in _rules(self._web_app):
            pattern = getattr(getattr(rule.matcher, "regex", None), "pattern", "")
            if pattern.startswith(prefix) and "state" in (rule.target_kwargs or {}):
                return ProxyRoute(rule)
        return None


def _rules(web_app: Application) -> list[Rule]:
    hosts = web_app.default_router.rules
    return [rule for host in hosts for rule in getattr(host.target, "rules", ())]


def truncate_log(path: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Truncate a log larger than ``max_bytes`` in place to its last ``max_bytes`` / 8 bytes.

    The app has opened the file for appending, so it continues at the new end.
    """
    try:
        if path.stat().st_size <= max_bytes:
            return
        with open(path, "r+b") as file:
            file.seek(-(max_bytes // TRUNCATED_LOG_DIVISOR), 2)
            last_part = file.read()
            file.seek(0)
            file.truncate()
            file.write(last_part)
    except OSError:
        # The file does not exist, or the disk is full; the next check tries again.
        return


def _is_locked(state: Mapping[str, Any]) -> bool:
    lock = state.get("proc_lock")
    return lock is not None and lock.locked()


async def _end(process: Any) -> None:
    try:
        await asyncio.wait_for(process.terminate(), STOP_TIMEOUT_SECONDS)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.proc.send_signal(signal.SIGKILL)
        await process.proc.wait()
        process.running = False
