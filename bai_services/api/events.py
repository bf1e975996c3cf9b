"""`/events`: change notifications of sessions, folders and invitations as server-sent events."""

from __future__ import annotations

import json
from contextlib import suppress

from tornado.iostream import StreamClosedError

from bai_services.core.errors import NotSignedIn
from bai_services.manager.events import Change

from .base import APIHandler, operation
from .streams import AccessChanged, cancel_on_access_change

# Interval of keepalive events. Clients need them to detect a broken stream: if the manager is
# killed, the proxy keeps the connection open.
KEEPALIVE_SECONDS = 10.0


class EventsHandler(APIHandler):
    """Streams notifications that name the changed object; the client fetches its current state."""

    is_timed = False

    @operation(
        "Stream change notifications of sessions, folders and invitations (text/event-stream)",
        tag="sessions",
        parameters={
            "session": "id or name of one session; default: all visible sessions, and the caller's "
            "folders and invitations"
        },
    )
    async def get(self) -> None:
        session_id = self.get_query_argument("session", None)
        if session_id is not None:
            # Raises NotFound for a missing session, and for a session that the caller may not read.
            session_id = (await self.manager.sessions.sessions.get(self.caller, session_id)).id
        changes = self.manager.feed.follow(self.caller, session_id, KEEPALIVE_SECONDS)
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("X-Accel-Buffering", "no")
        try:
            # The first comment shows the client that the stream is open.
            await self._send(": open\n\n")
            async with cancel_on_access_change(self):
                async for change in changes:
                    await self._send(_line(change))
        except StreamClosedError:
            # The client has disconnected, so there is no response to finish.
            self._finished = True
        except NotSignedIn:
            await self._end()
        except AccessChanged:
            # The stream uses the permissions that the caller had at its start, so the client must
            # open a new stream.
            self.write("event: access\ndata: {}\n\n")
            await self._end()
        finally:
            await changes.aclose()

    async def _end(self) -> None:
        with suppress(StreamClosedError):
            await self.finish()

    async def _send(self, text: str) -> None:
        self.write(text)
        await self.flush()


def _line(change: Change | None) -> str:
    if change is None:
        return "event: keepalive\ndata: {}\n\n"
    data = {
        "kind": change.kind,
        "session_id": change.session_id,
        "status": change.status,
        # With this field, clients can ignore sessions of others without reading them; the audit log
        # would record the read.
        "owner_id": change.owner_id,
        "folder_id": change.folder_id,
    }
    return f"event: {change.kind}\ndata: {json.dumps(data)}\n\n"


ROUTES = [("/events", EventsHandler)]
