"""A proxy that forwards nothing, for a Hub whose servers the tests access directly."""

from __future__ import annotations

from typing import Any

from jupyterhub.proxy import Proxy


class BareProxy(Proxy):
    """A proxy that only stores routes; it has no process and no port."""

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
