"""`/events`: changes of sessions as server-sent events."""

from __future__ import annotations

import json

from tornado.iostream import StreamClosedError

from bai_services.core.errors import NotSignedIn

from .base import APIHandler, operation

KEEPALIVE_SECONDS = 15.0


class EventsHandler(APIHandler):
    """Says that something changed; what it is now, the reader asks for."""

    @operation("Follow sessions (text/event-stream; ?session=ID for one)", tag="sessions")
    async def get(self) -> None:
        session_id = self.get_query_argument("session", None)
        if session_id is not None:
            # A session that the caller may not read is not found, as everywhere.
            session_id = (await self.manager.sessions.get(self.caller, session_id))["id"]
        changes = self.manager.feed.follow(self.caller, session_id, KEEPALIVE_SECONDS)
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("X-Accel-Buffering", "no")
        try:
            # The first comment tells the reader that the stream is open.
            await self._send(": open\n\n")
            async for change in changes:
                if change is None:
                    # Somebody whose account was closed meanwhile hears no more.
                    await self.sign_in()
                    await self._send(": still here\n\n")
                    continue
                data = {
                    "kind": change.kind,
                    "session_id": change.session_id,
                    "status": change.status,
                }
                await self._send(f"event: {change.kind}\ndata: {json.dumps(data)}\n\n")
            await self.finish()
        except StreamClosedError:
            # The reader left: nobody is there to be answered.
            self._finished = True
        except NotSignedIn:
            await self.finish()
        finally:
            await changes.aclose()

    async def _send(self, text: str) -> None:
        self.write(text)
        await self.flush()


ROUTES = [("/events", EventsHandler)]
