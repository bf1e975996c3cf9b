"""`/sessions/{key}/logs`, `/log-file`, `/log-stream`: the output of a session's kernels."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime

from tornado.iostream import StreamClosedError

from bai_services.core import errors
from bai_services.core.sessions import records
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.user_input import read_whole, shown
from bai_services.manager.sessions.logs import LogChunk

from ..base import APIHandler, operation
from ..fields import ResponseModel
from ..streams import AccessChanged, cancel_on_access_change

# The stored output of a kernel rarely has more lines: it has at most 262,144 characters.
MAX_LINES = 100_000
_TAG = "sessions"


class Match(ResponseModel):
    number: int
    text: str


class SessionLog(ResponseModel):
    """``matches`` and ``match_count`` are only contained in the response to a search."""

    session_id: str
    kernel: str
    log: str
    is_live: bool
    has_times: bool
    matches: list[Match] | None = None
    match_count: int | None = None


class LogHit(ResponseModel):
    """``matches``: the first lines, shortened; ``match_count``: the number of all lines."""

    session_id: str
    session: str
    kernel: str
    terminated_at: datetime | None
    match_count: int
    matches: list[Match]


class LogSearch(ResponseModel):
    """``searched``: number of searched logs.

    ``after``: parameter of the next request; null: all logs are searched.
    """

    items: list[LogHit]
    searched: int
    after: str | None


_PARAMETERS = {
    "kernel": "host name of the kernel; default: main1",
    "times": "true: prefix each line with its time, if the engine records it",
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
            "lines": "maximum number of lines, counted from the end",
            "search": "return only lines that contain this text; ignores case",
        },
    )
    async def get(self, key: str) -> records.LogText:
        return await self.manager.sessions.logs.read(
            self.caller,
            key,
            self.kernel(),
            max_lines=_lines(self.get_query_argument("lines", "")),
            search_text=self.get_query_argument("search", "", strip=False),
            has_times=self.has_times(),
        )


class LogSearchHandler(APIHandler):
    @operation(
        "Search the logs of your ended sessions, the newest first",
        tag=_TAG,
        returns=LogSearch,
        parameters={
            "search": "the text; ignores case",
            "after": "continue after this log: `after` of the previous response",
        },
        is_expensive=True,
    )
    async def get(self) -> records.LogSearch:
        return await self.manager.sessions.stored_logs.search(
            self.caller,
            self.get_query_argument("search", "", strip=False),
            self.get_query_argument("after", ""),
        )


class LogFileHandler(LogHandler):
    @operation(
        "Download a session's output as a file",
        tag=_TAG,
        is_file=True,
        media_types=("text/plain",),
        is_for_sessions=True,
        parameters=_PARAMETERS,
    )
    async def get(self, key: str) -> None:
        log = await self.manager.sessions.logs.read(
            self.caller, key, self.kernel(), has_times=self.has_times()
        )
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{key}-{log['kernel']}.log")
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.set_header("Content-Security-Policy", "sandbox; default-src 'none'")
        self.write(log["log"])
        await self.finish()


class LogStreamHandler(LogHandler):
    """Sends ``event: log`` with ``{"text", "is_gap"}``, and ``event: end`` after the last output.

    If an error occurs after the first event, it is sent as ``event: error``.
    """

    is_timed = False

    @operation(
        "Stream a session's output (text/event-stream)",
        tag=_TAG,
        is_for_sessions=True,
        parameters=_PARAMETERS,
    )
    async def get(self, key: str) -> None:
        chunks = self.manager.sessions.logs.follow(
            self.caller, key, self.kernel(), has_times=self.has_times()
        )
        try:
            # Read the first chunk before sending headers, so that an error gets its own status.
            chunk = await anext(chunks, None)
            self.set_header("Content-Type", "text/event-stream")
            self.set_header("X-Accel-Buffering", "no")
            await self._send(chunk)
            async with cancel_on_access_change(self):
                async for chunk in chunks:
                    await self._send(chunk)
            self.write("event: end\ndata: {}\n\n")
            await self.finish()
        except StreamClosedError:
            self._finished = True
        except AccessChanged:
            # The client opens another stream if it may still read the log.
            with suppress(StreamClosedError):
                await self.finish()
        except errors.BaiError as error:
            if not self._headers_written:
                raise
            content = {"error": error.code, "message": error.message}
            self.write(f"event: error\ndata: {json.dumps(content)}\n\n")
            with suppress(StreamClosedError):
                await self.finish()
        finally:
            await chunks.aclose()

    async def _send(self, chunk: LogChunk | None) -> None:
        if chunk is None:
            self.write(": keepalive\n\n")
        else:
            data = json.dumps({"text": chunk.text, "is_gap": chunk.is_gap})
            self.write(f"event: log\ndata: {data}\n\n")
        await self.flush()


def _lines(text: str) -> int | None:
    if not text:
        return None
    number = read_whole(text)
    if number is None or not 0 < number <= MAX_LINES:
        raise errors.InvalidRequest(
            f"lines={shown(text)!r} must be a whole number from 1 to {MAX_LINES}",
            field="lines",
        )
    return number


_KEY = r"/sessions/(?P<key>[^/]+)"

ROUTES = [
    ("/session-logs", LogSearchHandler),
    (_KEY + "/logs", LogsHandler),
    (_KEY + "/log-file", LogFileHandler),
    (_KEY + "/log-stream", LogStreamHandler),
]
