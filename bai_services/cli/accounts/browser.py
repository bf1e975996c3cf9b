"""Browser sign-in: obtain a one-time code that only this process can redeem (PKCE)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import webbrowser
from urllib.parse import parse_qs, urlencode, urlsplit

from bai_services.core.errors import NotSignedIn

from .. import output

TIMEOUT_SECONDS = 300
_MAX_REQUEST_BYTES = 8192

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>bai</title>
<style>:root{{color-scheme:light dark}}body{{font:16px system-ui;margin:15vh auto;max-width:30em}}
</style></head><body><h1>{title}</h1><p>{text}</p></body></html>"""


async def request_code(service_url: str, *, opens_browser: bool) -> tuple[str, str]:
    """Return a one-time code from the sign-in page, and the verifier that redeems it.

    The sign-in page redirects the browser to a port of 127.0.0.1 on which this process
    listens. A leaked code cannot be redeemed without the verifier, which only this process has
    (PKCE, S256).

    Raises
    ------
    NotSignedIn
        If the user does not sign in within ``TIMEOUT_SECONDS``.
    """
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    state = secrets.token_urlsafe(24)
    codes: asyncio.Queue[str] = asyncio.Queue(1)

    handlers: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        try:
            code = await _read_code(reader, state)
            writer.write(_response(code))
            await writer.drain()
        finally:
            writer.close()
        if code and codes.empty():
            codes.put_nowait(code)

    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=_MAX_REQUEST_BYTES)
    async with server:
        port = server.sockets[0].getsockname()[1]
        query = urlencode({"port": port, "challenge": challenge, "state": state})
        address = f"{service_url}/cli-login?{query}"
        output.note(f"sign in at {address}")
        if opens_browser:
            # Open the browser in a thread: a text-mode browser blocks until it exits, but the
            # listener must respond.
            await asyncio.to_thread(webbrowser.open, address)
        try:
            code = await asyncio.wait_for(codes.get(), TIMEOUT_SECONDS)
        except TimeoutError:
            raise NotSignedIn(
                f"no sign-in within {TIMEOUT_SECONDS // 60} minutes; run bai login again"
            ) from None
        finally:
            # Idle connections must not delay the exit.
            tasks = [task for task in handlers if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return code, verifier


async def _read_code(reader: asyncio.StreamReader, state: str) -> str | None:
    """Return the code in a GET request with the right ``state``; otherwise None."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout=10)
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return None
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    arguments = parse_qs(urlsplit(rest.partition(" ")[0]).query)
    given = arguments.get("state", [""])[0]
    if method != "GET" or not hmac.compare_digest(given.encode(), state.encode()):
        return None
    return arguments.get("code", [None])[0]


def _response(code: str | None) -> bytes:
    status = "200 OK" if code else "404 Not Found"
    page = (
        _PAGE.format(title="Signed in", text="You can close this page.")
        if code
        else _PAGE.format(title="Invalid link", text="Start again with: bai login")
    )
    body = page.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
