"""Record the use of apps; requests that an open page sends by itself do not count as use."""

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

# Key of our entry in Jupyter's `last_activity_times`; Jupyter reports the latest entry to the Hub.
ACTIVITY = "bai_labext"
# Host name that jupyter-server-proxy uses for the loopback interface.
LOCAL = "localhost"

hosts = Hosts()


@dataclass
class Use:
    """Time of the last use of an app (None: never used), and its number of open websockets."""

    at: datetime | None = None
    websockets: int = 0


class AppActivity:
    """The last use of each app of one Jupyter server."""

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
        """Return the seconds since the last use of an app; None if it was never used."""
        at = self.of(name).at
        return None if at is None else (self._clock() - at).total_seconds()

    def record_use(self, name: str) -> None:
        """Record a use of the app, which is also a use of the session."""
        now = self._clock()
        self.of(name).at = now
        self._activity_times()[ACTIVITY] = now


def is_use(request: HTTPServerRequest, app_path: str, polled: str) -> bool:
    """Return whether a request counts as use; ``app_path`` is its path inside the app.

    Opening a websocket does not count, because a page that has lost its connection reconnects by
    itself.
    """
    if request.headers.get("Upgrade", "").lower() == "websocket":
        return False
    return not is_polled(app_path, polled)


def is_polled(app_path: str, polled: str) -> bool:
    """Return whether an open page requests this path by itself; see ``App.polled``."""
    return bool(polled and re.fullmatch(polled, app_path))


def forget_ended_process(state: dict[str, Any]) -> None:
    """Forget the process of an app if it has ended, so that a request restarts the app.

    jupyter-server-proxy itself would keep forwarding requests to the ended process.
    """
    process, lock = state.get("proc"), state.get("proc_lock")
    is_busy = lock is not None and lock.locked()
    if process is not None and not is_busy and not process.running:
        del state["proc"]
        state.pop("unix_socket", None)
        state.pop("port", None)


def activity_recording_handler(
    handler: type, app: App, uses: AppActivity, record_start: Callable[[], None] | None = None
) -> type:
    """Return a subclass of a jupyter-server-proxy handler that counts only uses of the app.

    The original handler counts all traffic in either direction, so an open tab would keep a session
    alive forever. The subclass also connects to apps that listen on IPv6 only, and calls
    ``record_start`` at each start of the app's process.
    """

    def record_fast_use_of_app(path: str) -> None:
        if not is_polled(path, app.polled):
            uses.record_use(app.name)

    class UseRecording(handler, AppProxyHandler):
        record_fast_use = staticmethod(record_fast_use_of_app)
        _local_host = LOCAL

        async def prepare(self, *args: Any, **kwargs: Any) -> None:
            await super().prepare(*args, **kwargs)
            if not self._finished:
                self.record_request()

        def record_request(self) -> None:
            forget_ended_process(getattr(self, "state", {}))
            app_path = "/" + (self.path_args[-1] or "").lstrip("/")
            if is_use(self.request, app_path, app.polled):
                uses.record_use(app.name)

        def get_cmd(self) -> Any:
            if record_start is not None:
                record_start()
            return super().get_cmd()

        async def open(self, *args: Any, **kwargs: Any) -> None:
            uses.of(app.name).websockets += 1
            self._is_counted = True
            await super().open(*args, **kwargs)

        def on_message(self, message: str | bytes) -> None:
            if len(message) > app.quiet_bytes:
                uses.record_use(app.name)
            super().on_message(message)

        def on_close(self) -> None:
            if getattr(self, "_is_counted", False):
                uses.of(app.name).websockets -= 1
                self._is_counted = False
            super().on_close()

        async def find_local_host(self, host: str, port: Any) -> None:
            if host == LOCAL and not self.unix_socket:
                # Some systems resolve "localhost" to an IPv4 address only.
                self._local_host = await hosts.of(int(port))

        def get_client_uri(self, protocol: str, host: str, port: Any, path: str) -> str:
            if host == LOCAL:
                host = self._local_host
            return str(super().get_client_uri(protocol, host, port, path))

        def _record_activity(self) -> None:
            """Do nothing; jupyter-server-proxy calls this for all traffic."""

    return UseRecording


def activity_times(settings: Mapping[str, Any]) -> dict[str, datetime]:
    """Return Jupyter's mutable dict with the time of the last activity of each extension."""
    times: dict[str, datetime] = settings["last_activity_times"]
    return times
