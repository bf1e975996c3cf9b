"""``python -m bai_labext.batch``: runner of a batch session.

If the session is a Hub server, the runner acts as its single-user server: it responds to the
readiness check, and reports activity while the command runs. It starts the command only after the
Hub has registered the server, so that a failed start runs nothing. The session has no pages;
requests of a browser are redirected to the Hub. If an agent has started the session, there is no
Hub server, and the command starts at once. The runner exits with the exit code of the command. The
module imports only the standard library, because its import time delays every batch session.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from bai_labext import session_setup

FIRST_POLL_PAUSE_SECONDS = 0.1
MAX_POLL_PAUSE_SECONDS = 2.0
ACTIVITY_INTERVAL_SECONDS = 300.0
CALL_TIMEOUT_SECONDS = 10.0
# Statuses with which a Hub denies a session access to its own server.
DENIED = (401, 403, 404)
# Exit codes by the convention of shells.
NO_SHELL = 127
SIGNAL_BASE = 128


class Hub:
    """The Hub's API, with this session's own token."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._api = environ.get("JUPYTERHUB_API_URL", "").rstrip("/")
        self._activity = environ.get("JUPYTERHUB_ACTIVITY_URL", "")
        self._token = environ.get("JUPYTERHUB_API_TOKEN", "")
        self._user = environ.get("JUPYTERHUB_USER", "")
        self._server = environ.get("JUPYTERHUB_SERVER_NAME", "")
        # The Hub is on the local network, so ignore the proxy settings of the environment.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def has_server(self) -> bool:
        """Return whether the Hub has completed the start of this server.

        Also return True if the environment names no Hub API or no server, or if the Hub denies the
        request: waiting would not help.

        Raises
        ------
        OSError
            If the Hub does not respond, or responds with another error or invalid content.
        """
        if not self._api:
            return True
        path = f"/users/{quote(self._user, safe='')}"
        if not self._server:
            return True
        try:
            model = self._call(f"{self._api}{path}/servers/{quote(self._server, safe='')}")
        except urllib.error.HTTPError as error:
            if error.code in DENIED:
                return True
            raise
        return bool(model.get("ready"))

    def report_activity(self) -> None:
        """Report activity to the Hub; ignore an OSError, which would end the reporting thread."""
        if not self._activity:
            return
        now = datetime.now(UTC).isoformat()
        body = {"servers": {self._server: {"last_activity": now}}, "last_activity": now}
        with suppress(OSError):
            self._call(self._activity, body)

    def _call(self, url: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Authorization": f"token {self._token}"})
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=CALL_TIMEOUT_SECONDS) as response:
                text = response.read()
            content = json.loads(text) if text else {}
        except (HTTPException, ValueError) as error:
            raise OSError(f"the response of the Hub is invalid: {error}") from error
        if not isinstance(content, dict):
            raise OSError("the response of the Hub is not a JSON object")
        return content


class ReadinessServer(Protocol):
    """A server in a thread that answers the Hub's readiness check."""

    def shutdown(self) -> None: ...

    def server_close(self) -> None: ...


class Runner:
    """Runs the command; before that, serves the Hub's readiness check and waits for the Hub."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._command = self._environ.pop("BAI_STARTUP_COMMAND", "")
        self._hub = Hub(environ)
        self._has_server = "JUPYTERHUB_SERVICE_URL" in environ
        self._requested = threading.Event()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run the command and return its exit code.

        If a signal ended the command, return 128 plus the number of the signal. If the session is
        stopped before the command starts, return 143 (SIGTERM).
        """
        server = self._serve() if self._has_server else None
        previous = {n: signal.signal(n, self._on_signal) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            if server is not None:
                if not self._wait_for_hub():
                    return SIGNAL_BASE + signal.SIGTERM
                threading.Thread(target=self._report, daemon=True).start()
            return self._run_command()
        finally:
            self._stopping.set()
            for number, handler in previous.items():
                signal.signal(number, handler)
            if server is not None:
                server.shutdown()
                server.server_close()

    def _serve(self) -> ReadinessServer:
        url = urlsplit(self._environ["JUPYTERHUB_SERVICE_URL"])
        home = self._environ.get("JUPYTERHUB_BASE_URL", "/") + "hub/home"
        server = ThreadingHTTPServer(
            (url.hostname or "127.0.0.1", url.port or 0), request_handler(home, self._requested)
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def _wait_for_hub(self) -> bool:
        """Wait until the Hub has registered this server.

        Return True in this case, or False if a signal stops the session first.
        """
        pause = FIRST_POLL_PAUSE_SECONDS
        while not self._stopping.is_set():
            # Query the Hub only after its readiness check (or any other request) has arrived.
            if self._requested.wait(FIRST_POLL_PAUSE_SECONDS):
                with suppress(OSError):
                    if self._hub.has_server():
                        return True
                self._stopping.wait(pause)
                pause = min(pause * 1.5, MAX_POLL_PAUSE_SECONDS)
        return False

    def _run_command(self) -> int:
        shell = session_setup.shell()
        if not os.access(shell, os.X_OK):
            print("the image has neither /bin/bash nor /bin/sh", file=sys.stderr)
            return NO_SHELL
        # Show the output of Python programs while they run.
        environ = {"PYTHONUNBUFFERED": "1", **self._environ}
        with subprocess.Popen(
            [shell, "-c", self._command],
            env=environ,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            self._process = process
            if self._stopping.is_set():
                self._signal_command(signal.SIGTERM)
            code = process.wait()
        return code if code >= 0 else SIGNAL_BASE - code

    def _on_signal(self, number: int, frame: object) -> None:
        self._stopping.set()
        self._signal_command(number)

    def _signal_command(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _report(self) -> None:
        configured = self._environ.get("JUPYTERHUB_ACTIVITY_INTERVAL")
        interval = float(configured or ACTIVITY_INTERVAL_SECONDS)
        while True:
            self._hub.report_activity()
            if interval <= 0 or self._stopping.wait(interval):
                return


def request_handler(home: str, requested: threading.Event) -> type[BaseHTTPRequestHandler]:
    """Return a handler that serves the Hub's readiness check and redirects users to ``home``.

    It sets ``requested`` after each response.
    """

    class RequestHandler(BaseHTTPRequestHandler):
        server_version, sys_version = "bai-batch", ""

        def do_GET(self) -> None:
            is_check = urlsplit(self.path).path.rstrip("/").endswith("/api")
            self.send_response(200 if is_check else 302)
            self.send_header("X-JupyterHub-Version", hub_version())
            self.send_header("Content-Length", "0")
            self.send_header("Cache-Control", "no-store")
            if not is_check:
                self.send_header("Location", home)
            self.end_headers()
            requested.set()

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing, so that the session's log contains only the command's output."""

    return RequestHandler


def hub_version() -> str:
    try:
        return version("jupyterhub")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    session_setup.apply(os.environ)
    sys.exit(Runner(os.environ).run())
