"""Use of apps: requests that an open page sends by itself do not count."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tornado.httputil import HTTPServerRequest

from bai_labext.app_proxy.handler import AppProxyHandler
from bai_labext.apps.catalogue import App
from bai_labext.ports import Hosts

# Name of the last-activity entry in Jupyter's settings; Jupyter reports the latest entry to the
# Hub.
ACTIVITY = "bai_labext"
# jupyter-server-proxy's name for this machine.
LOCAL = "localhost"

hosts = Hosts()


@dataclass
class Use:
    """Time of the last use of an app, and its number of open websockets."""

    at: datetime | None = None
    websockets: int = 0


class AppActivity:
    """Use of all apps of one Jupyter server."""

    def __init__(
        self,
        activity_times: Callable[[], dict[str, datetime]],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._activity_times = activity_times
        self._clock = clock
        self._uses: dict[str, Use] = {}

    def of(self, name: str) -> Use:
        return self._uses.setdefault(name, Use())

    def idle_seconds(self, name: str) -> float | None:
        """Return how long an app has been unused; None if it was never used."""
        at = self.of(name).at
        return None if at is None else (self._clock() - at).total_seconds()

    def used(self, name: str) -> None:
        """Record a use of the app, which is also a use of the session."""
        now = self._clock()
        self.of(name).at = now
        self._activity_times()[ACTIVITY] = now


def is_use(request: HTTPServerRequest, below: str, polled: str) -> bool:
    """Return whether a request counts as use; ``below`` is its path inside the app.

    Opening a websocket does not count, because a page that lost its connection reconnects by
    itself.
    """
    if request.headers.get("Upgrade", "").lower() == "websocket":
        return False
    return not is_polled(below, polled)


def is_polled(below: str, polled: str) -> bool:
    return bool(polled and re.fullmatch(polled, below))


def forget_ended(state: dict[str, Any]) -> None:
    """Make the next request start an ended process again, which jupyter-server-proxy does not
    do.
    """
    process, lock = state.get("proc"), state.get("proc_lock")
    is_busy = lock is not None and lock.locked()
    if process is not None and not is_busy and not process.running:
        del state["proc"]
        state.pop("unix_socket", None)
        state.pop("port", None)


def watched(handler: type, app: App, uses: AppActivity) -> type:
    """Return a handler of jupyter-server-proxy that records uses instead of any traffic.

    It also connects to servers that listen on IPv6 only. The original counts every byte in either
    direction, so an open tab would keep a session alive for ever.
    """

    def note_fast_use_of_app(path: str) -> None:
        if not is_polled(path, app.polled):
            uses.used(app.name)

    class Watched(handler, AppProxyHandler):
        note_fast_use = staticmethod(note_fast_use_of_app)
        _local_host = LOCAL

        async def prepare(self, *args: Any, **kwargs: Any) -> None:
            await super().prepare(*args, **kwargs)
            if not self._finished:
                self.note_use()

        def note_use(self) -> None:
            forget_ended(getattr(self, "state", {}))
            below = "/" + (self.path_args[-1] or "").lstrip("/")
            if is_use(self.request, below, app.polled):
                uses.used(app.name)

        async def open(self, *args: Any, **kwargs: Any) -> None:
            uses.of(app.name).websockets += 1
            self._is_counted = True
            await super().open(*args, **kwargs)

        def on_message(self, message: str | bytes) -> None:
            if len(message) > app.quiet_bytes:
                uses.used(app.name)
            super().on_message(message)

        def on_close(self) -> None:
            if getattr(self, "_is_counted", False):
                uses.of(app.name).websockets -= 1
                self._is_counted = False
            super().on_close()

        async def find_local_host(self, host: str, port: Any) -> None:
            if host == LOCAL and not self.unix_socket:
                # Not every system resolves "localhost" to an IPv6 address as well.
                self._local_host = await hosts.of(int(port))

        def get_client_uri(self, protocol: str, host: str, port: Any, path: str) -> str:
            if host == LOCAL:
                host = self._local_host
            return str(super().get_client_uri(protocol, host, port, path))

        def _record_activity(self) -> None:
            pass

    return Watched


def activity_times(settings: Mapping[str, Any]) -> dict[str, datetime]:
    """Return where a Jupyter server stores the times of activity outside of its own handlers."""
    found: dict[str, datetime] = settings["last_activity_times"]
    return found
