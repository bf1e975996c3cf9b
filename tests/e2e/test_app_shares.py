"""Shared apps of a session, by name and by port: access by visitors and other users."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.hub import RunningHub, running_session
from tests.testbed.jupyter import JupyterServer
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


pytestmark = pytest.mark.e2e

# A program that returns the path and headers of each request; its websocket echoes messages.
SERVER = """
import asyncio, json, sys
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler
class Page(RequestHandler):
    def get(self):
        self.write(json.dumps({"path": self.request.uri, **dict(self.request.headers)}))
class Echo(WebSocketHandler):
    def on_message(self, message):
        self.write_message(message)
async def main():
    Application([("/ws", Echo), ("/.*", Page)]).listen(int(sys.argv[1]), sys.argv[2])
    await asyncio.Event().wait()
asyncio.run(main())
"""


@dataclass(frozen=True)
class SharedPort:
    """A session of ``user``, in which a program listens on a pre-opened port."""

    hub: RunningHub
    session: dict[str, Any]
    port: int
    rest: httpx.Client

    @property
    def app(self) -> str:
        return f"port-{self.port}"

    def share(self, app: str, **audience: Any) -> dict[str, Any]:
        made = self.rest.post(
            f"/sessions/{self.session['id']}/app-shares", json={"app": app, **audience}
        )
        assert made.status_code == 201, made.text
        share: dict[str, Any] = made.json()
        return share

    def routes(self, app: str) -> list[str]:
        """Return the paths at which a user could open an app; the last is the one for visitors."""
        base = self.session["url"]
        own = f"{base}proxy/{self.port}/" if app == self.app else f"{base}{app}/"
        return [
            own,
            f"{base}proxy/absolute/{self.port}/",
            f"{base}proxy/localhost:{self.port}/",
            f"{base}shared/{app}/",
        ]


@pytest.fixture(scope="module")
def shared_port(hub: RunningHub) -> Iterator[SharedPort]:
    with hub.rest("admin") as admin:
        policy = admin.get("/users/user").json()["resource_policy"]
        changed = admin.patch(f"/user-policies/{policy}", json={"app_sharing": "public"})
        assert changed.status_code == 200, changed.text
    port = free_port()
    session = running_session(hub, "user", preopen_ports=[port])
    rest = hub.rest("user")
    server = jupyter(hub, rest, session)
    assert app_of(server, f"port-{port}")["state"] == "stopped"
    assert "Nothing listens" in app_of(server, f"port-{port}")["message"]
    command = f"python -c {shlex.quote(SERVER)} {port} 127.0.0.1 & echo st''arted"
    asyncio.run(server.run_in_terminal(command, "started"))
    wait_until(
        lambda: app_of(server, f"port-{port}")["state"] == "running", 60, "the port to be listed"
    )
    try:
        yield SharedPort(hub, session, port, rest)
    finally:
        rest.delete(f"/sessions/{session['id']}")


def jupyter(hub: RunningHub, rest: httpx.Client, session: dict[str, Any]) -> JupyterServer:
    token = rest.headers["Authorization"].partition(" ")[2]
    return JupyterServer(hub.url + session["url"], token)


def app_of(server: JupyterServer, name: str) -> dict[str, Any]:
    items = server.get("bai/api/apps").json()["items"]
    return next(item for item in items if item["name"] == name)


@asynccontextmanager
async def open_websocket(
    hub: RunningHub, path: str, headers: dict[str, str]
) -> AsyncIterator[WebSocketClientConnection]:
    address = hub.url.replace("http", "ws", 1) + path
    connection = await websocket_connect(HTTPRequest(address, headers=headers, request_timeout=30))
    try:
        yield connection
    finally:
        # Read the end of the connection (`None`) at most once: a second read would not return.
        is_over = connection.close_code is not None
        connection.close()
        while not is_over and await connection.read_message() is not None:
            pass


async def is_denied(hub: RunningHub, path: str, headers: dict[str, str]) -> bool:
    try:
        async with open_websocket(hub, path, headers):
            return False
    except HTTPClientError as error:
        return error.code in (302, 403)


def final_response(client: httpx.Client, path: str, headers: dict[str, str]) -> httpx.Response:
    """Follow redirects and return the final response."""
    return client.get(path, headers=headers, follow_redirects=True)


def visitor_cookie(client: httpx.Client) -> dict[str, str]:
    """Return the Cookie header with the visitor's token; empty if the client has no token."""
    tokens = [c.value for c in client.cookies.jar if c.name == "bai-visit"]
    return {"Cookie": f"bai-visit={tokens[0]}"} if tokens else {}


async def test_the_link_of_a_share_opens_only_the_shared_app(shared_port: SharedPort) -> None:
    share = shared_port.share(shared_port.app, user="user2")
    shared = f"{shared_port.session['url']}shared/{shared_port.app}/"
    with shared_port.hub.sign_in("user2") as guest:
        answer = guest.get(share["url"], follow_redirects=True)
        assert answer.status_code == 200, answer.text
        assert (answer.url.path, answer.url.query) == (shared, b"")
        seen = answer.json()
        assert seen["path"] == "/"
        # The owner's program receives neither the visitor's token nor an Authorization header.
        assert "bai-visit" not in str(seen) and "Authorization" not in seen
        assert seen["X-Forwarded-Prefix"] == shared.rstrip("/")
        async with open_websocket(shared_port.hub, f"{shared}ws", visitor_cookie(guest)) as echo:
            await echo.write_message("hello")
            assert await echo.read_message() == "hello"
        # The visitor is denied other paths of the session.
        for path in shared_port.routes(shared_port.app)[:-1]:
            assert guest.get(path, follow_redirects=True).status_code == 403, path
            assert await is_denied(shared_port.hub, f"{path}ws", visitor_cookie(guest)), path
        for path in ("lab", "bai/api/apps", "api/contents", "terminals/websocket/1"):
            inside = f"{shared_port.session['url']}{path}"
            assert guest.get(inside, follow_redirects=True).status_code == 403, path
        elsewhere = f"{shared_port.session['url']}shared/tensorboard/"
        assert guest.get(elsewhere, headers=visitor_cookie(guest)).status_code == 403
        shared_port.rest.delete(f"/sessions/{shared_port.session['id']}/app-shares/{share['id']}")
        wait_until(lambda: guest.get(shared).status_code == 403, 60, "the share to end")
        assert await is_denied(shared_port.hub, f"{shared}ws", visitor_cookie(guest))


def test_a_visit_ends_when_the_visitor_signs_out(shared_port: SharedPort) -> None:
    share = shared_port.share(shared_port.app, user="user2")
    url = f"{shared_port.hub.url}{shared_port.session['url']}shared/{shared_port.app}/"
    with shared_port.hub.sign_in("user2") as guest:
        assert guest.get(share["url"], follow_redirects=True).status_code == 200
        visit = visitor_cookie(guest)
        assert httpx.get(url, headers=visit).status_code == 200
        guest.get("/hub/logout", follow_redirects=True)
    wait_until(lambda: httpx.get(url, headers=visit).status_code == 403, 20, "the visit to end")


async def test_revoking_a_share_closes_its_websockets(shared_port: SharedPort) -> None:
    share = shared_port.share(shared_port.app, user="user2")
    shared = f"{shared_port.session['url']}shared/{shared_port.app}/"
    with shared_port.hub.sign_in("user2") as guest:
        assert guest.get(share["url"], follow_redirects=True).status_code == 200
        async with open_websocket(shared_port.hub, f"{shared}ws", visitor_cookie(guest)) as echo:
            shared_port.rest.delete(
                f"/sessions/{shared_port.session['id']}/app-shares/{share['id']}"
            )
            assert await asyncio.wait_for(echo.read_message(), 60) is None
            assert echo.close_code == 1008


@pytest.mark.parametrize("app", ["tensorboard", "port"])
@pytest.mark.parametrize("who", ["anonymous", "other", "same project"])
async def test_users_without_a_valid_share_are_denied_everywhere(
    shared_port: SharedPort, app: str, who: str
) -> None:
    name = shared_port.app if app == "port" else app
    username = {"other": "acme-user", "same project": "user2"}.get(who)
    # Share the app with a user other than the one who is denied.
    shared_port.share(name, user="domain-admin")
    if username is None:
        with shared_port.hub.client() as nobody:
            await assert_denied_everywhere(shared_port, name, nobody, {})
        return
    with shared_port.hub.sign_in(username) as guest:
        await assert_denied_everywhere(shared_port, name, guest, {})


async def test_expired_shares_give_no_access(shared_port: SharedPort) -> None:
    with ExitStack() as stack:
        visits = []
        # Create both shares first, so that they expire at about the same time.
        for name in ("tensorboard", shared_port.app):
            guest = stack.enter_context(shared_port.hub.sign_in("user2"))
            short = shared_port.share(name, user="user2", expires_in=15)
            assert guest.get(short["url"], follow_redirects=True).status_code == 200
            headers = visitor_cookie(guest)
            assert headers
            visits.append((name, guest, short["url"], headers))
        for name, guest, link, headers in visits:
            wait_for_expiry(guest, f"{shared_port.session['url']}shared/{name}/", link)
            await assert_denied_everywhere(shared_port, name, guest, headers)


def wait_for_expiry(guest: httpx.Client, shared: str, link: str) -> None:
    wait_until(lambda: guest.get(shared).status_code == 403, 60, "the share to expire")
    # The link can remain valid for up to 1 s longer than the visitor's token.
    wait_until(
        lambda: guest.get(link, follow_redirects=True).status_code == 404, 5, "the link to expire"
    )


async def assert_denied_everywhere(
    shared_port: SharedPort, app: str, client: httpx.Client, headers: dict[str, str]
) -> None:
    for path in shared_port.routes(app):
        answer = final_response(client, path, headers)
        is_login = answer.url.path == "/hub/login"
        assert answer.status_code == 403 or is_login, (path, answer.status_code, answer.url)
        assert await is_denied(shared_port.hub, f"{path}ws", headers), path
    other = shared_port.share(app, user="domain-admin")
    link = final_response(client, other["url"], headers)
    assert link.status_code == 404 or link.url.path == "/hub/login", link.url


async def test_a_public_share_is_accessible_only_from_the_allowed_addresses(
    shared_port: SharedPort,
) -> None:
    shared = f"{shared_port.session['url']}shared/{shared_port.app}/"
    open_to = shared_port.share(shared_port.app, public=True, allowed_addresses=["127.0.0.0/8"])
    with shared_port.hub.client() as nobody:
        answer = nobody.get(open_to["url"], follow_redirects=True)
        assert (answer.status_code, answer.url.path) == (200, shared)
        async with open_websocket(shared_port.hub, f"{shared}ws", visitor_cookie(nobody)) as echo:
            await echo.write_message("hello")
            assert await echo.read_message() == "hello"
        for path in shared_port.routes(shared_port.app)[:-1]:
            denied = nobody.get(path, follow_redirects=True)
            assert denied.url.path == "/hub/login", path
    elsewhere = shared_port.share(shared_port.app, public=True, allowed_addresses=["192.0.2.0/24"])
    with shared_port.hub.client() as nobody:
        answer = nobody.get(elsewhere["url"], follow_redirects=True)
        assert answer.status_code == 404
        forged = {"X-Forwarded-For": "192.0.2.7"}
        answer = nobody.get(elsewhere["url"], headers=forged, follow_redirects=True)
        assert answer.status_code == 404


def test_the_panel_lists_the_shares_of_the_session(shared_port: SharedPort) -> None:
    share = shared_port.share(shared_port.app, project="default")
    server = jupyter(shared_port.hub, shared_port.rest, shared_port.session)
    items = {item["id"]: item for item in server.get("bai/api/shares").json()["items"]}
    assert items[share["id"]]["project"] == "default"
    assert "session_id" not in items[share["id"]]
