"""A real installation with demo data in subprocesses, as `make run` starts it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import psutil

from tests.testbed.plain_http import NO_TLS
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 120
STOP_SECONDS = 90

Component = Literal["hub", "manager", "agent", "gateway", "proxy", "launcher"]
# For each component, a text that occurs only in the command line of this component.
WORDS: Mapping[Component, str] = {
    "launcher": "scripts/run",
    "hub": "jupyterhub_config.py",
    "manager": "bai_services.app",
    "agent": "bai_services.agent",
    "gateway": "bai_services.gateway",
    "proxy": "configurable-http-proxy",
}


class RunningHub:
    """A demo with its own folder and free ports.

    All demo accounts have the password in the attribute ``password``. Like
    `make run`, a `start` after a `kill` continues with the data in the folder.
    """

    def __init__(
        self, home: Path, engine: str = "process", environment: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self.engine = engine
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.api = f"{self.url}/services/bai/api/v1"
        self.password = f"Demo-{secrets.token_hex(8)}-1"
        self.output = home / "run.log"
        self._environment = dict(environment or {})
        self._launcher: subprocess.Popen[bytes] | None = None
        self._clients: list[httpx.Client] = []
        self._tokens: dict[str, str] = {}
        self._processes = _Processes(home, self.port)

    def start(self) -> RunningHub:
        """Start all components and wait until the login page and the manager respond.

        Raises
        ------
        RuntimeError
            If `make run` exits; the message contains the end of the logs.
        TimeoutError
            If the login page or the manager does not respond within ``START_SECONDS``.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("BAI_")},
            "BAI_HOME": str(self.home),
            "BAI_PORT": str(self.port),
            "BAI_ENGINE": self.engine,
            "BAI_DEMO_PASSWORD": self.password,
            **self._environment,
        }
        with open(self.output, "ab") as output:
            self._launcher = subprocess.Popen(
                [sys.executable, str(ROOT / "scripts/run")],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_until(
            lambda: self._has_ended() or self.is_up(), START_SECONDS, "a response of the Hub"
        )
        if self._has_ended():
            raise RuntimeError(f"the demo did not start:\n{self.logs()}")
        return self

    def _has_ended(self) -> bool:
        return self._launcher is None or self._launcher.poll() is not None

    def is_up(self) -> bool:
        try:
            return (
                httpx.get(f"{self.url}/hub/login", timeout=5, verify=NO_TLS).status_code == 200
                and httpx.get(f"{self.api}/health", timeout=5, verify=NO_TLS).status_code == 200
            )
        except httpx.HTTPError:
            return False

    def wait_for_output(self, text: str, seconds: float = 20) -> str:
        """Wait until the launcher has printed ``text``; return all that it has printed."""
        wait_until(lambda: text in self.output.read_text(), seconds, f"{text!r} in the output")
        return self.output.read_text()

    def logs(self, lines: int = 60) -> str:
        """Return the last lines of the log of the launcher and of the log of the Hub."""
        texts = []
        for path in (self.output, self.home / "hub.log"):
            if path.exists():
                end = path.read_text(errors="replace").splitlines()[-lines:]
                texts.append("\n".join([f"--- {path.name}", *end]))
        return "\n".join(texts)

    def process_of(self, component: Component) -> psutil.Process:
        """Return the process of a component; wait up to 20 s if it is being restarted."""
        return wait_until(
            lambda: self._processes.find(component), 20, f"a process of the {component}"
        )

    def kill(self, component: Component) -> None:
        """Send SIGKILL to a component and wait for its exit; "launcher" is `make run` itself."""
        if component == "launcher":
            assert self._launcher is not None
            self._launcher.kill()
            self._launcher.wait(STOP_SECONDS)
            return
        process = self.process_of(component)
        process.kill()
        _wait_for_exit([process])
        if component == "hub" and self._launcher is not None:
            # The launcher exits when its Hub has exited.
            self._launcher.wait(STOP_SECONDS)

    @contextmanager
    def suspended(self, component: Component) -> Iterator[None]:
        """Suspend the process of a component during the ``with`` block."""
        process = self.process_of(component)
        process.suspend()
        try:
            yield
        finally:
            process.resume()

    def interrupt(self) -> int:
        """Send SIGINT (Ctrl-C) and return the exit code of `make run`."""
        assert self._launcher is not None
        self._launcher.send_signal(signal.SIGINT)
        return self._launcher.wait(STOP_SECONDS)

    def stop(self) -> None:
        """Stop all processes of this folder, including sessions; kill those that do not stop."""
        while self._clients:
            self._clients.pop().close()
        if self._launcher is not None and self._launcher.poll() is None:
            self._launcher.send_signal(signal.SIGTERM)
            try:
                self._launcher.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._launcher.kill()
        remaining = self.left_running()
        for process in remaining:
            process.kill()
        _wait_for_exit(remaining)

    def left_running(self) -> list[psutil.Process]:
        """Return the running processes of this folder, including sessions."""
        return [process for process in self._processes.all() if _is_alive(process)]

    def client(self, timeout_seconds: float = 60) -> httpx.Client:
        """Return an HTTP client that stores cookies and does not follow redirects."""
        return self._close_at_stop(
            httpx.Client(base_url=self.url, timeout=timeout_seconds, verify=NO_TLS)
        )

    def _close_at_stop(self, client: httpx.Client) -> httpx.Client:
        self._clients.append(client)
        return client

    def post_form(self, client: httpx.Client, path: str, **fields: str) -> httpx.Response:
        """Submit a form of the Hub with the XSRF token of its page."""
        client.get("/hub/login")
        fields["_xsrf"] = client.cookies.get("_xsrf", path="/hub/") or ""
        return client.post(path, data=fields)

    @contextmanager
    def sign_in(self, name: str, password: str | None = None) -> Iterator[httpx.Client]:
        """Sign in on the login page; yield a client with the Hub's cookies.

        Raises
        ------
        AssertionError
            If the sign-in is rejected; the message contains the page.
        """
        with self.client() as client:
            fields = {"username": name, "password": password or self.password}
            response = self.post_form(client, "/hub/login", **fields)
            assert response.status_code == 302, response.text
            yield client

    def rest(self, name: str) -> httpx.Client:
        """Return a client for the REST API (``/sessions``, …) with a token of that account.

        Clients of an account share one token: the password check for a new token takes 0.1 s of
        CPU time.
        """
        if name not in self._tokens or not self._is_valid(self._tokens[name]):
            self._tokens[name] = self.create_token(name)
        headers = {"Authorization": f"Bearer {self._tokens[name]}"}
        return self._close_at_stop(
            httpx.Client(base_url=self.api, headers=headers, timeout=60, verify=NO_TLS)
        )

    def create_token(self, name: str) -> str:
        """Sign in to the REST API; return a token that no other client uses."""
        body = {"name": name, "password": self.password}
        response = httpx.post(f"{self.api}/auth/token", json=body, timeout=30, verify=NO_TLS)
        assert response.status_code in (200, 201), response.text
        return str(response.json()["token"])

    def _is_valid(self, token: str) -> bool:
        headers = {"Authorization": f"Bearer {token}"}
        response = httpx.get(f"{self.api}/me", headers=headers, timeout=30, verify=NO_TLS)
        return response.status_code == 200

    def jupyter(self, rest: httpx.Client, url: str) -> httpx.Client:
        """Return a client for the Jupyter server at ``url``, with the token of ``rest``."""
        headers = {"Authorization": rest.headers["Authorization"]}
        return self._close_at_stop(
            httpx.Client(base_url=self.url + url, headers=headers, timeout=60, verify=NO_TLS)
        )


def running_session(hub: RunningHub, name: str, **fields: Any) -> dict[str, Any]:
    """Start a session of an account and return it when it is RUNNING."""
    with hub.rest(name) as rest:
        spec = {
            "name": f"run-{secrets.token_hex(4)}",
            "project": "default",
            "resources": {"cpu": "1", "mem": "512m"},
        }
        made = rest.post("/sessions", json={**spec, **fields})
        assert made.status_code == 201, made.text
        key = made.json()["id"]
        return session_in(hub, name, key, "RUNNING", ended=("ERROR", "CANCELLED", "TERMINATED"))


def session_in(
    hub: RunningHub, name: str, key: str, status: str, *, ended: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Wait until a session has ``status``; return the session. Fail on a status in ``ended``."""
    with hub.rest(name) as rest:

        def session_with_status() -> dict[str, Any] | None:
            session: dict[str, Any] = rest.get(f"/sessions/{key}").json()
            assert session["status"] not in ended, session
            return session if session["status"] == status else None

        session = wait_until(session_with_status, START_SECONDS, f"the session to be {status}")
        assert session is not None
        return session


class _Processes:
    """Finds the processes of one demo, including those whose parent has exited."""

    def __init__(self, home: Path, port: int) -> None:
        self._home = home
        self._ports = home / f"ports-{port}.json"

    def find(self, component: Component) -> psutil.Process | None:
        for process in self.all():
            try:
                if any(WORDS[component] in word for word in process.cmdline()):
                    return process
            except psutil.Error:
                continue
        return None

    def all(self) -> list[psutil.Process]:
        """Return the processes whose environment names this folder or Hub, with descendants."""
        processes: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and self._is_ours(process):
                    processes[process.pid] = process
                    processes |= {child.pid: child for child in process.children(recursive=True)}
            except psutil.Error:
                continue
        return list(processes.values())

    def _is_ours(self, process: psutil.Process) -> bool:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        environ = process.environ()
        # The environment of a session contains the URL of its Hub, but neither the folder nor the
        # public port.
        return environ.get("BAI_HOME") == str(self._home) or (
            self._hub_api in environ.get("JUPYTERHUB_API_URL", "")
        )

    @property
    def _hub_api(self) -> str:
        if not self._ports.exists():
            return "no ports yet"
        return f":{json.loads(self._ports.read_text())['hub']}/hub/"


def _wait_for_exit(processes: list[psutil.Process]) -> None:
    wait_until(lambda: not any(map(_is_alive, processes)), 20, f"the end of {processes}")


def _is_alive(process: psutil.Process) -> bool:
    try:
        # A zombie has exited; it remains listed until its parent reads the exit status.
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
