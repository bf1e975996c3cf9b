"""``python -m bai_labext.batch``: runs the command of a batch session and answers the Hub.

To the Hub it is a single-user server: it answers, and reports activity while the command runs. The
command starts when the Hub has the server, so that a failed start has run nothing, and its exit
code is that of this process. The session has no pages: its address redirects to the Hub. Standard
library only, because it starts with every batch session.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote, urlsplit

FIRST_LOOK_SECONDS = 0.1
MAX_LOOK_SECONDS = 2.0
ACTIVITY_SECONDS = 300.0
CALL_SECONDS = 10.0
# Statuses of a Hub that does not let a session read its own server.
REFUSED = (401, 403, 404)
# Exit codes as shells use them.
NO_SHELL = 127
SIGNALLED = 128


class Hub:
    """The Hub's API, with this session's own token."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._api = environ.get("JUPYTERHUB_API_URL", "").rstrip("/")
        self._activity = environ.get("JUPYTERHUB_ACTIVITY_URL", "")
        self._token = environ.get("JUPYTERHUB_API_TOKEN", "")
        self._user = environ.get("JUPYTERHUB_USER", "")
        self._server = environ.get("JUPYTERHUB_SERVER_NAME", "")
        # The Hub is local; a proxy for the internet must not be used.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def has_server(self) -> bool:
        """Return whether this server's start is complete; True if the Hub does not reveal it.

        Raises
        ------
        OSError
            If the Hub does not answer.
        """
        if not self._api:
            return True
        path = f"/users/{quote(self._user, safe='')}"
        if not self._server:
            return True
        try:
            model = self._call(f"{self._api}{path}/servers/{quote(self._server, safe='')}")
        except urllib.error.HTTPError as error:
            if error.code in REFUSED:
                return True
            raise
        return bool(model.get("ready"))

    def report_activity(self) -> None:
        """Report activity to the Hub; a failed report is repaired by the next one."""
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
        with self._opener.open(request, timeout=CALL_SECONDS) as answer:
            text = answer.read()
        found: Mapping[str, Any] = json.loads(text) if text else {}
        return found


class Runner:
    """Waits for the Hub, runs the command, and exits with its exit code."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._command = self._environ.pop("BAI_STARTUP_COMMAND", "")
        self._hub = Hub(environ)
        self._is_asked_for = threading.Event()
        self._is_over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Return the exit code of the command, or that of the signal that ended it or the wait."""
        server = self._serve()
        previous = {n: signal.signal(n, self._on_signal) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            if not self._wait_for_hub():
                return SIGNALLED + signal.SIGTERM
            threading.Thread(target=self._report, daemon=True).start()
            return self._run_command()
        finally:
            self._is_over.set()
            for number, handler in previous.items():
                signal.signal(number, handler)
            server.shutdown()
            server.server_close()

    def _serve(self) -> ThreadingHTTPServer:
        where = urlsplit(self._environ["JUPYTERHUB_SERVICE_URL"])
        home = self._environ.get("JUPYTERHUB_BASE_URL", "/") + "hub/home"
        server = ThreadingHTTPServer(
            (where.hostname or "127.0.0.1", where.port or 0), answers(home, self._is_asked_for)
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def _wait_for_hub(self) -> bool:
        """Return when the Hub has this server; False if a stop was requested before."""
        pause = FIRST_LOOK_SECONDS
        while not self._is_over.is_set():
            # Until somebody requests this server, the Hub need not be queried.
            if self._is_asked_for.wait(FIRST_LOOK_SECONDS):
                with suppress(OSError, ValueError):
                    if self._hub.has_server():
                        return True
                self._is_over.wait(pause)
                pause = min(pause * 1.5, MAX_LOOK_SECONDS)
        return False

    def _run_command(self) -> int:
        shell = next((path for path in ("/bin/bash", "/bin/sh") if os.access(path, os.X_OK)), None)
        if shell is None:
            print("there is no shell to run the command with", file=sys.stderr)
            return NO_SHELL
        # Output must be visible while the program runs.
        environ = {"PYTHONUNBUFFERED": "1", **self._environ}
        with subprocess.Popen(
            [shell, "-c", self._command],
            env=environ,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            self._process = process
            if self._is_over.is_set():
                self._pass_on(signal.SIGTERM)
            code = process.wait()
        return code if code >= 0 else SIGNALLED - code

    def _on_signal(self, number: int, frame: object) -> None:
        self._is_over.set()
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _report(self) -> None:
        interval = float(self._environ.get("JUPYTERHUB_ACTIVITY_INTERVAL") or ACTIVITY_SECONDS)
        while True:
            self._hub.report_activity()
            if interval <= 0 or self._is_over.wait(interval):
                return


def answers(home: str, is_asked_for: threading.Event) -> type[BaseHTTPRequestHandler]:
    """Return a handler for the Hub's readiness check, and for users, who are redirected to the
    Hub.
    """

    class Answer(BaseHTTPRequestHandler):
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
            is_asked_for.set()

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: the output of a batch session is that of its command."""

    return Answer


def hub_version() -> str:
    try:
        return version("jupyterhub")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(Runner(os.environ).run())
