"""A real Hub in a subprocess, with a real manager as its service and the demo data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import httpx

from tests.testbed.plain_http import NO_TLS
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

ROOT = Path(__file__).parents[2]
PASSWORD = "demo horse 1!"
TEST_TOKEN = "0123456789abcdef" * 2


@dataclass
class HubAndManager:
    """A running Hub and its manager; ``token`` has the manager's permissions in the Hub."""

    process: subprocess.Popen[bytes]
    hub_url: str  # ends with "/hub/api"
    manager_url: str  # ends with "/services/bai"
    log: Path
    token: str = TEST_TOKEN

    def manager_pid(self) -> int:
        """Return the id of the current manager process."""
        assert re.search(r"Spawning .*bai_services\.app", self.log.read_text())
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        (pid,) = (
            int(pid)
            for pid in children.read_text().split()
            if b"bai_services.app" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        return pid

    def health(self) -> Mapping[str, object] | None:
        try:
            url = f"{self.manager_url}/api/v1/health"
            return dict(httpx.get(url, timeout=5, verify=NO_TLS).json())
        except httpx.TransportError:
            return None


class Router(httpx.AsyncBaseTransport):
    """A transport that replaces the proxy: it routes requests to Hub or manager by their path."""

    def __init__(self, hub: HubAndManager) -> None:
        self._hub = urljoin(hub.hub_url, "/")
        self._manager = urljoin(hub.manager_url, "/")
        self._http = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        is_for_manager = request.url.path.startswith("/services/bai")
        target = httpx.URL(self._manager if is_for_manager else self._hub)
        # Send a copy: httpx stores cookies for the URL of the original request.
        sent = httpx.Request(
            request.method,
            request.url.copy_with(host=target.host, port=target.port),
            headers=request.headers,
            stream=request.stream,
        )
        return await self._http.handle_async_request(sent)

    async def aclose(self) -> None:
        await self._http.aclose()


@asynccontextmanager
async def signed_in_browser(hub: HubAndManager, username: str) -> AsyncIterator[httpx.AsyncClient]:
    """Sign in on the Hub's login page; yield a client with the cookies."""
    async with httpx.AsyncClient(
        transport=Router(hub), base_url="http://hub.test", follow_redirects=True
    ) as browser:
        page = await browser.get("/hub/login")
        xsrf = re.search(r'name="_xsrf" value="([^"]+)"', page.text)
        assert xsrf is not None
        form = {"username": username, "password": "any", "_xsrf": xsrf[1]}
        answer = await browser.post("/hub/login", data=form, follow_redirects=False)
        assert answer.status_code == 302, answer.text
        yield browser


@contextmanager
def running_hub(folder: Path) -> Iterator[HubAndManager]:
    """Start Hub and manager, yield when the manager is healthy, and stop both at the end."""
    hub_port, manager_port, public_port = free_port(), free_port(), free_port()
    environ = {
        **os.environ,
        "BAI_HOME": str(folder / "bai"),
        "BAI_DEMO_PASSWORD": PASSWORD,
        "HUB_FOLDER": str(folder),
        "HUB_PORT": str(hub_port),
        "HUB_PUBLIC_PORT": str(public_port),
        "MANAGER_PORT": str(manager_port),
        "TEST_TOKEN": TEST_TOKEN,
    }
    demo = [sys.executable, "-m", "bai_services.demo", "--engine", "process"]
    subprocess.run(demo, env=environ, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    log = folder / "hub.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bai_services.run_hub",
                "-f",
                str(Path(__file__).parent / "hub_config.py"),
            ],
            env=environ,
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )
    hub = HubAndManager(
        process,
        f"http://127.0.0.1:{hub_port}/hub/api",
        f"http://127.0.0.1:{manager_port}/services/bai",
        log,
    )
    try:
        wait_until(
            lambda: process.poll() is not None or (hub.health() or {}).get("status") == "ok",
            90,
            "Hub and manager to be healthy",
        )
        assert process.poll() is None, log.read_text()[-4000:]
        yield hub
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
