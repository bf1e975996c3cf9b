"""Configuration of a real Hub without a proxy, for tests of the Hub's REST API and sign-in."""

import asyncio
import os
import sys

from jupyterhub.proxy import Proxy
from jupyterhub.spawner import Spawner


class NoProxy(Proxy):
    """A proxy that only stores routes: tests send requests directly to the Hub or the manager."""

    should_start = False

    async def add_route(self, routespec, target, data):
        self.__dict__.setdefault("routes", {})[routespec] = {
            "routespec": routespec,
            "target": target,
            "data": data,
        }

    async def delete_route(self, routespec):
        self.__dict__.setdefault("routes", {}).pop(routespec, None)

    async def get_all_routes(self):
        return self.__dict__.get("routes", {})


class InProcessSpawner(Spawner):
    """Starts a server inside the process of the Hub; it responds to each request with 200."""

    http_server = None

    async def start(self):
        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            writer.close()

        self.http_server = await asyncio.start_server(answer, "127.0.0.1", 0)
        return self.http_server.sockets[0].getsockname()

    async def poll(self):
        return None if self.http_server is not None else 0

    async def stop(self, now=False):
        if self.http_server is not None:
            self.http_server.close()
            self.http_server = None


c = get_config()  # noqa: F821  # defined by traitlets in configuration files
folder = os.environ["HUB_FOLDER"]
c.JupyterHub.bind_url = f"http://127.0.0.1:{os.environ['HUB_PUBLIC_PORT']}"
c.JupyterHub.hub_port = int(os.environ["HUB_PORT"])
c.JupyterHub.db_url = f"sqlite:///{folder}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = f"{folder}/cookie"
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.spawner_class = InProcessSpawner
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.allow_named_servers = True
c.JupyterHub.active_server_limit = 3
c.JupyterHub.spawn_throttle_retry_range = (7, 8)
c.JupyterHub.custom_scopes = {
    "custom:bai:session": {"description": "Access the resource manager as a session."}
}
c.JupyterHub.extra_user_scopes = ["access:services!service=bai", "custom:bai:session"]
c.JupyterHub.services = [
    {
        "name": "bai",
        "url": f"http://127.0.0.1:{os.environ['MANAGER_PORT']}",
        "command": [sys.executable, "-m", "bai_services.app"],
        "environment": {k: v for k, v in os.environ.items() if k.startswith("BAI_")},
        "oauth_no_confirm": True,
    },
    {"name": "test", "api_token": os.environ["TEST_TOKEN"]},
]
scopes = ["admin:users", "admin:servers", "tokens", "read:hub"]
c.JupyterHub.load_roles = [{"name": "bai-manager", "services": ["bai", "test"], "scopes": scopes}]
