"""A real Hub in a subprocess, with bai-hub's spawner and the manager of the test."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60

CONFIG = """
from tests.spawner.standin import SOURCE

c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.proxy_class = "tests.spawner.bare_proxy.BareProxy"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "bai"
c.JupyterHub.allow_named_servers = True
c.JupyterHub.cleanup_servers = False
# The Hub responds to a start request when the start has ended, or after 60 s.
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 60}}
c.JupyterHub.services = [{{"name": "test", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers", "tokens"]}}
]
c.BaiSpawner.queue_grace_seconds = {grace}
c.BaiSpawner.start_timeout = {start_timeout}
c.BaiSpawner.poll_interval = 1
c.BaiSpawner.manager_timeout_seconds = 20
c.ProcessEngine.stop_grace_seconds = 5

COMMANDS = {{
    "dies": ["sh", "-c", "echo first; echo 'no luck <b>' >&2; exit 9"],
    "silent": ["sleep", "600"],
    "unprepared": ["sh", "-c", "echo fetching; echo 'the bootstrap script failed'; exit 190"],
}}


def choose(spawner):
    kind = spawner.name.partition("-")[0]
    spawner.cmd = COMMANDS.get(kind, ["{python}", "-c", SOURCE])


c.BaiSpawner.pre_spawn_hook = choose
"""


class BareHub:
    """Starts, kills and calls a Hub, whose folder and sessions remain after `kill`."""

    def __init__(self, folder: Path, manager_url: str, hub_token: str) -> None:
        self.folder = folder
        self.grace = 20.0
        self.start_timeout = 30
        self.manager_url = manager_url
        self._port = free_port()
        self._token = secrets.token_hex(16)
        (folder / "hub-token").write_text(hub_token)
        self._environ = {
            **{name: text for name, text in os.environ.items() if not name.startswith("BAI_")},
            "BAI_HOME": str(folder),
            "BAI_HUB_TOKEN_FILE": str(folder / "hub-token"),
            "PYTHONPATH": str(ROOT),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.api = self._client(self._token)
        self._as_user: httpx.AsyncClient | None = None

    def _client(self, token: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self._port}/hub/api",
            headers={"Authorization": f"token {token}"},
            timeout=60,
        )

    async def start_with_user(self) -> None:
        """Start the Hub and create ``user``, for whom `post_server` starts servers."""
        await asyncio.to_thread(self.start)
        await self.api.post("/users/user")
        answer = await self.api.post("/users/user/tokens")
        self._as_user = self._client(answer.json()["token"])

    def start(self) -> None:
        """Start the Hub and wait until it responds.

        Raises
        ------
        RuntimeError
            If the Hub exits; the message contains the end of its log.
        """
        config = self.folder / "config.py"
        config.write_text(
            CONFIG.format(
                port=self._port,
                folder=self.folder,
                token=self._token,
                grace=self.grace,
                start_timeout=self.start_timeout,
                python=sys.executable,
            )
        )
        with open(self.folder / "hub.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bai_services.run_hub", "-f", str(config)],
                env={**self._environ, "BAI_MANAGER_URL": self.manager_url},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        wait_until(lambda: self._has_ended() or self._answers(), START_SECONDS, "the Hub")
        if self._has_ended():
            raise RuntimeError(f"the Hub did not start:\n{self.log()}")

    def log(self) -> str:
        return (self.folder / "hub.log").read_text(errors="replace")[-8000:]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(30)

    async def close(self) -> None:
        await self.api.aclose()
        if self._as_user is not None:
            await self._as_user.aclose()
        if not self._has_ended():
            self.kill()

    async def post_server(
        self, server: str, options: Any = None, *, as_service: bool = False
    ) -> httpx.Response:
        """Ask the Hub to start a server of ``user``, as that user or as a service."""
        path = f"/users/user/servers/{server}" if server else "/users/user/server"
        body = {} if options is None else {"user_options": options}
        assert self._as_user is not None
        return await (self.api if as_service else self._as_user).post(path, json=body)

    async def server(self, server: str) -> dict[str, Any]:
        """Return the Hub's model of a server of ``user``, or an empty model."""
        answer = await self.api.get("/users/user", params={"include_stopped_servers": "1"})
        found: dict[str, Any] = answer.json()["servers"].get(server, {})
        return found

    async def delete_server(self, server: str, remove: bool = False) -> httpx.Response:
        path = f"/users/user/servers/{server}" if server else "/users/user/server"
        return await self.api.request("DELETE", path, json={"remove": remove} if server else {})

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self._port}/hub/health"
            return httpx.get(url, timeout=2).status_code == 200
        except httpx.HTTPError:
            return False
