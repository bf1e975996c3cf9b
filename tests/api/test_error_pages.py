"""Error pages and error responses of the manager for errors that ask the client to retry."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from jupyterhub.services.auth import HubOAuth
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from bai_services.api.base import APIHandler, operation
from bai_services.api.sessions.page import PageHandler
from bai_services.core import errors
from bai_services.manager.hub.client import HubBusy
from tests.testbed.manager import Api

# Three errors that ask the client to retry later, and one error that does not. HubBusy inherits the
# status of its base class.
ERRORS = {
    "busy": HubBusy(2.5),
    "limited": errors.RateLimited("too many requests", retry_after_seconds=7),
    "blocked": errors.SignInBlocked("too many failures", retry_after_seconds=60),
    "missing": errors.NotFound("not there"),
}


class FailingPage(PageHandler):
    async def get(self, name: str) -> None:
        self.render_error(ERRORS[name], None)


class FailingOperation(APIHandler):
    @operation("Fail", tag="fail", is_open=True)
    async def get(self, name: str) -> None:
        raise ERRORS[name]


@pytest.fixture
async def http(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    oauth = HubOAuth(api_token="token", api_url="http://127.0.0.1:1/hub/api", base_url="/")
    routes = [("/page/(?P<name>[a-z]+)", FailingPage), ("/api/(?P<name>[a-z]+)", FailingOperation)]
    settings = {"hub_oauth": oauth, "cookie_secret": "secret", "manager": api.world.manager}
    server = HTTPServer(Application(routes, **settings))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        yield client
    server.stop()


@pytest.mark.parametrize(
    ("name", "status", "retry_after", "text"),
    [
        ("busy", 429, "3", "limit of concurrent starts"),
        ("limited", 429, "7", "too many requests"),
        ("blocked", 429, "60", "too many failures"),
        ("missing", 404, None, "not there"),
    ],
)
async def test_error_page_and_response_have_the_status_and_the_retry_after_header(
    http: httpx.AsyncClient, name: str, status: int, retry_after: str | None, text: str
) -> None:
    page = await http.get(f"/page/{name}")
    assert (page.status_code, page.headers.get("Retry-After")) == (status, retry_after)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<h1" in page.text
    assert (text in page.text) == (name != "missing")
    answer = await http.get(f"/api/{name}")
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, retry_after)
    assert text in answer.json()["message"]
