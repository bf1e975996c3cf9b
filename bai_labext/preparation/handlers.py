"""Route ``bai/api/preparation``: the upcoming stop, and what was saved before the last stop."""

from __future__ import annotations

from typing import Any

from tornado import web

from bai_labext.handlers import PanelHandler
from bai_labext.preparation.preparation import Preparation
from bai_services.core.errors import InvalidRequest

# Id of the event on which open pages read the state again.
EVENT = "https://bai-hub.example/events/preparation"
EVENT_SCHEMA: dict[str, Any] = {
    "$id": EVENT,
    "version": "1",
    "title": "A stop of the session is planned, or its preparation has ended",
    "type": "object",
    "properties": {"is_changed": {"type": "boolean"}},
}


class PreparationHandler(PanelHandler):
    """GET returns the state. POST ``{"page", "state": "saving" | "done", "saved", "unsaved"}`` is
    the answer of a page. DELETE dismisses the report of the last stop.
    """

    def initialize(self, preparation: Preparation) -> None:  # type: ignore[override]
        self.preparation = preparation

    @web.authenticated
    def get(self) -> None:
        self.write_json(self.preparation.describe())

    @web.authenticated
    def post(self) -> None:
        page, state = self.field("page")[:64], self.field("state")
        if state == "saving":
            self.preparation.pages.begin(page)
        elif state == "done":
            body = self.get_json_body() or {}
            self.preparation.pages.finish(page, body.get("saved"), body.get("unsaved"))
        else:
            raise InvalidRequest("state must be saving or done", field="state")
        self.write_json({})

    @web.authenticated
    async def delete(self) -> None:
        await self.preparation.dismiss_report()
        self.write_json({})
