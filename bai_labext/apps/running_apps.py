"""State, start and stop of a session's apps.

The processes belong to jupyter-server-proxy, which also starts one when somebody opens its address.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from jupyter_server.utils import url_path_join
from jupyter_server_proxy.handlers import ProxyHandler
from simpervisor.process import KilledProcessError
from tornado.httputil import HTTPServerRequest
from tornado.routing import Rule
from tornado.web import Application, HTTPError

from bai_labext.apps.activity import AppActivity, forget_ended, watched
from bai_labext.apps.apps import Offer, log_path
from bai_labext.apps.arguments import Arguments
from bai_labext.apps.catalogue import ANY_PORT, AppKind
from bai_labext.listeners import Listener, listeners
from bai_labext.ports import is_reachable, why_not
from bai_services.core.errors import Conflict, NotFound

STOP_SECONDS = 10.0
LOOK_SECONDS = 0.25
# A process that exits at once is started at most this many times.
TRIES = 3
IDLE_LOOK_SECONDS = 30.0
LOG_TAIL_BYTES = 16 * 1024
LOG_MOST_BYTES = 8 * 2**20
# A log that has grown too long is cut to this fraction of its maximum (1/8).
LOG_KEPT_PART = 8


class AppState(StrEnum):
    BUILTIN = "builtin"  # served by the Jupyter server itself
    MISSING = "missing"  # not offered by this session
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Proxied:
    """How jupyter-server-proxy serves an app: its route, and the state shared by its requests."""

    rule: Rule

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.rule.target_kwargs

    @property
    def handler(self) -> Callable[..., Any]:
        found: Callable[..., Any] = self.rule.target
        return found

    @property
    def state(self) -> dict[str, Any]:
        shared: dict[str, Any] = self.arguments["state"]
        return shared


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
        log_bytes: int = LOG_MOST_BYTES,
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

    def described(self) -> list[dict[str, Any]]:
        """Return every app of the catalogue and every named port with its state."""
        found = listeners()
        return [self._described(name, found) for name in self._offers]

    def offer(self, name: str) -> Offer:
        """Return an app by name.

        Raises
        ------
        NotFound
            If there is none.
        """
        if name not in self._offers:
            raise NotFound(f"there is no app {name!r} in the catalogue")
        return self._offers[name]

    def state(self, name: str, found: Sequence[Listener] | None = None) -> AppState:
        offer = self.offer(name)
        if not offer.is_offered:
            return AppState.MISSING
        if offer.app.kind in (AppKind.BUILTIN, AppKind.TCP):
            return AppState.BUILTIN
        if offer.app.kind is AppKind.PORT:
            listening = listeners() if found is None else found
            return AppState.RUNNING if is_reachable(offer.port, listening) else AppState.STOPPED
        proxied = self.proxied(name)
        if self._is_starting(name) or (proxied and _is_locked(proxied.state)):
            return AppState.STARTING
        process = None if proxied is None else proxied.state.get("proc")
        if process is not None and process.running:
            return AppState.RUNNING
        return AppState.FAILED if name in self._failures else AppState.STOPPED

    async def start(
        self, name: str, request: HTTPServerRequest, wanted: Mapping[str, Any], restart: bool
    ) -> None:
        """Start an app in the background; does nothing if it is running or starting with these
        arguments.

        Raises
        ------
        NotFound
            If there is no such app.
        Conflict
            If this session does not offer it, it cannot be started from here, or it is running
            with other arguments and ``restart`` is not set.
        InvalidRequest
            If an argument is missing, unknown or invalid.
        """
        offer = self.offer(name)
        if not offer.is_offered:
            raise Conflict(offer.refusal)
        if offer.app.kind is AppKind.PORT:
            if self.state(name) is not AppState.RUNNING:
                raise Conflict(self._why_not(offer, listeners()))
            return
        proxied = self.proxied(name)
        if proxied is None:
            return
        is_up = self.state(name) in (AppState.STARTING, AppState.RUNNING)
        chosen = self._arguments.choose(offer.app, wanted)
        if is_up and not restart:
            if wanted and chosen != self._started_with.get(name, chosen):
                raise Conflict(f"{offer.app.title} is running with other arguments; restart it")
            return
        self._arguments.check(offer.app)
        if is_up:
            await self.stop(name)
        self._failures.pop(name, None)
        self._started_with[name] = chosen
        self._starts[name] = asyncio.create_task(self._start(name, proxied, request))

    async def stop(self, name: str) -> None:
        """Stop an app's process, also one that is starting; SIGKILL if SIGTERM has no effect.

        Raises
        ------
        Conflict
            If it is not started by this server.
        """
        offer = self.offer(name)
        if offer.is_offered and offer.app.kind is not AppKind.PROCESS:
            raise Conflict(f"{offer.app.title} was not started here; stop it where it runs")
        self._failures.pop(name, None)
        proxied = self.proxied(name)
        process = None if proxied is None else proxied.state.get("proc")
        if proxied is None or process is None:
            return
        if process.running:
            await _end(process)
        # A cancelled start removes it by itself, once the cancellation has taken effect.
        if task := self._starts.get(name):
            await asyncio.wait([task])
            self._failures.pop(name, None)
        if proxied.state.get("proc") is process:
            del proxied.state["proc"]
        # A process ended by a signal leaves its socket; the next start uses another one.
        proxied.state.pop("unix_socket", None)
        proxied.state.pop("port", None)

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

    def watch(self) -> None:
        """Record use of apps from now on; jupyter-server-proxy must be loaded."""
        for name, offer in self._offers.items():
            proxied = self.proxied(name)
            if proxied is not None:
                proxied.rule.target = watched(proxied.rule.target, offer.app, self._uses)
        for rule in _rules(self._web_app):
            target = rule.target
            is_port = isinstance(target, type) and issubclass(target, ProxyHandler)
            if is_port and "state" not in rule.target_kwargs:
                rule.target = watched(target, ANY_PORT, self._uses)

    @property
    def offers(self) -> Sequence[Offer]:
        return list(self._offers.values())

    @property
    def uses(self) -> AppActivity:
        return self._uses

    async def stop_idle(self) -> None:
        """Stop, in a loop, the apps that have been unused for longer than allowed.

        It also keeps the logs of apps from growing without limit.
        """
        while True:
            await asyncio.sleep(IDLE_LOOK_SECONDS)
            for name in self.idle():
                await self.stop(name)
            for name in self._offers:
                path = Path(log_path(self._home, name))
                await asyncio.to_thread(bound, path, self._log_bytes)

    def idle(self) -> list[str]:
        """Return the running apps that are unused and may be stopped."""
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

    def _described(self, name: str, found: Sequence[Listener]) -> dict[str, Any]:
        offer = self._offers[name]
        app, state = offer.app, self.state(name, found)
        message = offer.refusal or self._failures.get(name, "")
        if state is AppState.STOPPED and app.kind is AppKind.PORT:
            message = self._why_not(offer, found)
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

    def _why_not(self, offer: Offer, found: Sequence[Listener]) -> str:
        return why_not(offer.port, found, [each.port for each in self._offers.values()])

    async def _start(self, name: str, proxied: Proxied, request: HTTPServerRequest) -> None:
        forget_ended(proxied.state)
        # The handler gets the request that asked for the start; no answer is sent with it.
        handler = proxied.handler(self._web_app, request, **proxied.arguments)
        starting = asyncio.ensure_future(handler.ensure_process())
        pids: set[int] = set()
        while not (await asyncio.wait([starting], timeout=LOOK_SECONDS))[0]:
            process = proxied.state.get("proc")
            if process is None or process.proc is None:
                continue
            pids.add(process.pid)
            if process.returncode == 0 or len(pids) > TRIES:
                # Keep jupyter-server-proxy from restarting a dying process for ever, or waiting for
                # an ended one.
                process._killed = True
                starting.cancel()
        app = self._offers[name].app
        title = app.title
        try:
            await starting
        except asyncio.CancelledError:
            self._failures[name] = f"{title} ended before it answered; its log may tell why"
        except HTTPError:
            self._failures[name] = (
                f"{title} did not answer within {app.timeout_seconds:.0f} s; its log may say why"
            )
        except (OSError, KilledProcessError) as error:
            self._failures[name] = f"{title} cannot be started: {error}"

    def _is_starting(self, name: str) -> bool:
        task = self._starts.get(name)
        return task is not None and not task.done()

    def proxied(self, name: str) -> Proxied | None:
        """Return the proxy of an app; None if the Jupyter server itself serves it.

        Looked up late, because jupyter-server-proxy is loaded after this extension.
        """
        prefix = url_path_join(self._web_app.settings["base_url"], name)
        for rule in _rules(self._web_app):
            pattern = getattr(getattr(rule.matcher, "regex", None), "pattern", "")
            if pattern.startswith(prefix) and "state" in (rule.target_kwargs or {}):
                return Proxied(rule)
        return None


def _rules(web_app: Application) -> list[Rule]:
    hosts = web_app.default_router.rules
    return [rule for host in hosts for rule in getattr(host.target, "rules", ())]


def bound(path: Path, most_bytes: int = LOG_MOST_BYTES) -> None:
    """Cut a log that has grown too long to its last part; its writer continues at its end."""
    try:
        if path.stat().st_size <= most_bytes:
            return
        with open(path, "r+b") as file:
            file.seek(-(most_bytes // LOG_KEPT_PART), 2)
            kept = file.read()
            file.seek(0)
            file.truncate()
            file.write(kept)
    except OSError:
        # It does not exist, or the disk is full: the next check may succeed.
        return


def _is_locked(state: Mapping[str, Any]) -> bool:
    lock = state.get("proc_lock")
    return lock is not None and lock.locked()


async def _end(process: Any) -> None:
    try:
        await asyncio.wait_for(process.terminate(), STOP_SECONDS)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.proc.send_signal(signal.SIGKILL)
        await process.proc.wait()
        process.running = False
