"""A proxy without routing, for a Hub whose servers are accessed directly."""

from __future__ import annotations

from typing import Any

from jupyterhub.proxy import Proxy


class BareProxy(Proxy):
    """Proxy that only stores the routes, without a process or a port."""

    should_start = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._routes: dict[str, dict[str, Any]] = {}

    async def add_route(self, routespec: str, target: str, data: dict[str, Any]) -> None:
        self._routes[routespec] = {"routespec": routespec, "target": target, "data": data}

    async def delete_route(self, routespec: str) -> None:
        self._routes.pop(routespec, None)

    async def get_all_routes(self) -> dict[str, dict[str, Any]]:
        return self._routes
