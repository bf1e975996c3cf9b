"""`/drain`: stops scheduling before the manager is restarted."""

from __future__ import annotations

from http import HTTPStatus

from .base import APIHandler, operation


class DrainHandler(APIHandler):
    @operation(
        "Stop placing and starting sessions until the manager is restarted",
        tag="health",
        status=HTTPStatus.NO_CONTENT,
    )
    async def post(self) -> None:
        await self.manager.drain.begin(self.caller)
        self.set_status(HTTPStatus.NO_CONTENT)
        await self.finish()


ROUTES = [("/drain", DrainHandler)]
