"""`/sessions/{key}/logs`, as an event stream and as a file."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from tornado.iostream import StreamClosedError

from bai_services.core import errors
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.manager.sessions.logs import Piece

from ..base import APIHandler, operation
from ..fields import Shown
from ..streams import ends_with_sign_in

# A kernel's stored output never has more lines.
MAX_LINES = 100_000
_TAG = "sessions"


class Match(Shown):
    number: int
    text: str


class SessionLog(Shown):
    """``matches`` and ``match_count`` are only contained in the answer to a search."""

    session_id: str
    kernel: str
    log: str
    is_live: bool
    has_times: bool
    matches: list[Match] | None = None
    match_count: int | None = None


_PARAMETERS = {
    "kernel": "host name of the kernel; main1",
    "times": "true: each line begins with its time, if the engine records it",
}


class LogHandler(APIHandler):
    def kernel(self) -> str:
        return str(self.get_query_argument("kernel", MAIN_HOST))

    def has_times(self) -> bool:
        return bool(self.get_query_argument("times", "") == "true")


class LogsHandler(LogHandler):
    @operation(
        "Read a session's output",
        tag=_TAG,
        returns=SessionLog,
        is_for_sessions=True,
        parameters={
            **_PARAMETERS,
            "lines": "at most this many of the last lines",
            "search": "only lines that contain this text, ignoring case",
        },
    )
    async def get(self, key: str) -> Any:
        return await self.manager.sessions.logs.read(
            self.caller,
            key,
            self.kernel(),
            most_lines=_lines(self.get_query_argument("lines", "")),
            words=self.get_query_argument("search", "", strip=False),
            has_times=self.has_times(),
        )


class LogFileHandler(LogHandler):
    @operation(
        "Download a session's output as a file",
        tag=_TAG,
        is_file=True,
        is_for_sessions=True,
        parameters=_PARAMETERS,
    )
    async def get(self, key: str) -> None:
        found = await self.manager.sessions.logs.read(
            self.caller, key, self.kernel(), has_times=self.has_times()
        )
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{key}-{found['kernel']}.log")
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.set_header("Content-Security-Policy", "sandbox; default-src 'none'")
        self.write(found["log"])
        await self.finish()


class LogStreamHandler(LogHandler):
    """``event: log`` with ``{"text", "is_gap"}``; ``event: end`` when the session has ended."""

    @operation(
        "Follow a session's output (text/event-stream)",
        tag=_TAG,
        is_for_sessions=True,
        parameters=_PARAMETERS,
    )
    async def get(self, key: str) -> None:
        pieces = self.manager.sessions.logs.follow(
            self.caller, key, self.kernel(), has_times=self.has_times()
        )
        try:
            # The first piece is read before anything is sent, so that a refusal gets its own
            # status.
            piece = await anext(pieces, None)
            self.set_header("Content-Type", "text/event-stream")
            self.set_header("X-Accel-Buffering", "no")
            await self._send("log", piece)
            async with ends_with_sign_in(self):
                async for piece in pieces:
                    await self._send("log", piece)
            self.write("event: end\ndata: {}\n\n")
            await self.finish()
        except StreamClosedError:
            self._finished = True
        except errors.BaiError as error:
            if not self._headers_written:
                raise
            said = {"error": error.code, "message": error.message}
            self.write(f"event: error\ndata: {json.dumps(said)}\n\n")
            with suppress(StreamClosedError):
                await self.finish()
        finally:
            await pieces.aclose()

    async def _send(self, event: str, piece: Piece | None) -> None:
        if piece is None:
            self.write(": nothing new\n\n")
        else:
            data = json.dumps({"text": piece.text, "is_gap": piece.is_gap})
            self.write(f"event: {event}\ndata: {data}\n\n")
        await self.flush()


def _lines(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MAX_LINES):
        raise errors.InvalidRequest(
            f"lines={text[:40]!r} is not a number of lines from 1 to {MAX_LINES}",
            field="lines",
        )
    return int(text)


_KEY = r"/sessions/(?P<key>[^/]+)"

ROUTES = [
    (_KEY + "/logs", LogsHandler),
    (_KEY + "/log-file", LogFileHandler),
    (_KEY + "/log-stream", LogStreamHandler),
]
