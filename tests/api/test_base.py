"""Base class of the handlers: validation of bodies, error responses, OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ConfigDict
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from bai_services.api import openapi
from bai_services.api.base import HTTP_STATUS, APIHandler, NotFoundHandler, operation
from bai_services.api.sessions.page import PageHandler
from bai_services.core import errors
from bai_services.core.accounts.roles import Caller
from bai_services.core.coded_text import refusal
from bai_services.core.listing import ListQuery
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.resources import ResourceSlots
from bai_services.manager.hub.client import HubBusy


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    count: int = 1


class EchoHandler(APIHandler):
    @operation(
        "Echo",
        tag="echo",
        body=RequestBody,
        returns=RequestBody,
        status=HTTPStatus.CREATED,
        is_open=True,
    )
    async def post(self, body: RequestBody) -> RequestBody:
        return body

    @operation("List", tag="echo", returns=RequestBody, is_list=True, is_open=True)
    async def get(self, query: ListQuery) -> dict[str, object]:
        return {"slots": ResourceSlots({"mem": 2**30}), "limit": query.limit}


class FailHandler(APIHandler):
    @operation("Fail", tag="fail", is_open=True)
    async def get(self, code: str) -> None:
        if code == "bug":
            raise RuntimeError("the password is 1234")
        if code == "hub-busy":
            raise HubBusy(2.5)
        if code == "coded":
            raise errors.Conflict(refusal(RefusalText.NO_IMAGE, name="a\x1b'b"), image="a")
        raise errors.by_code()[code]("the message", limit=ResourceSlots({"cpu": 500}))


class FailingPageHandler(PageHandler):
    async def get(self) -> None:
        self.render_error(HubBusy(2.5), None)

    def render_page(self, template: str, caller: Caller | None, **values: Any) -> None:
        self.finish(str(values["error"]))


ROUTES = [("/echo", EchoHandler), (r"/fail/(?P<code>[^/]+)", FailHandler)]


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    server = HTTPServer(
        Application(
            [*ROUTES, ("/page", FailingPageHandler)],
            default_handler_class=NotFoundHandler,
            hub_oauth=None,
        )
    )
    socket, port = bind_unused_port()
    server.add_socket(socket)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        yield client
    server.stop()
    await server.close_all_connections()


async def test_error_with_a_code_is_sent_with_its_values(http: httpx.AsyncClient) -> None:
    answer = await http.get("/fail/coded")
    assert answer.json() == {
        "error": "conflict",
        "message": 'there is no image "a\\x1b\'b"',
        "coded": {"code": "no-image", "values": {"name": "a\x1b'b"}, "parts": []},
        "details": {"image": "a"},
    }


async def test_valid_body_gives_a_json_response(http: httpx.AsyncClient) -> None:
    answer = await http.post("/echo", json={"name": "a"})
    assert (answer.status_code, answer.json()) == (201, {"name": "a", "count": 1})


@pytest.mark.parametrize(
    "body, part",
    [
        pytest.param('{"name": 3}', "name: ", id="wrong type"),
        pytest.param('{"name": "a", "nmae": 1}', "nmae: ", id="unknown field"),
        pytest.param("{", "Invalid JSON", id="invalid JSON"),
        pytest.param("", "name: Field required", id="missing body"),
        pytest.param('"\\ud800"', "Invalid JSON", id="lone surrogate"),
    ],
)
async def test_invalid_body_is_rejected_with_the_reason(
    http: httpx.AsyncClient, body: str, part: str
) -> None:
    answer = await http.post("/echo", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid-request"
    assert part in answer.json()["message"]


async def test_body_over_the_limit_is_rejected(http: httpx.AsyncClient) -> None:
    answer = await http.post("/echo", json={"name": "x" * 2**20})
    assert (answer.status_code, answer.json()["error"]) == (413, "too-large")


async def test_list_parses_query_parameters(http: httpx.AsyncClient) -> None:
    answer = await http.get("/echo", params={"limit": 7})
    assert answer.json() == {"slots": {"mem": "1g"}, "limit": 7}
    answer = await http.get("/echo", params={"limit": 0})
    assert "1 to 500" in answer.json()["message"]


@pytest.mark.parametrize("code", sorted(errors.by_code()))
async def test_each_error_has_its_status(http: httpx.AsyncClient, code: str) -> None:
    answer = await http.get(f"/fail/{code}")
    assert answer.status_code == HTTP_STATUS[errors.by_code()[code]]
    assert answer.json() == {
        "error": code,
        "message": "the message",
        "details": {"limit": {"cpu": "0.5"}},
    }


async def test_error_class_of_a_component_has_the_status_of_its_base_class(
    http: httpx.AsyncClient,
) -> None:
    for path in ("/fail/hub-busy", "/page"):
        answer = await http.get(path)
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "3"), path


async def test_unexpected_error_is_opaque_but_logged(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await http.get("/fail/bug")
    assert answer.status_code == 500
    assert "1234" not in answer.text
    assert "1234" in caplog.text


async def test_unknown_path_or_method_is_rejected(http: httpx.AsyncClient) -> None:
    answer = await http.get("/nothing")
    assert (answer.status_code, answer.json()["error"]) == (404, "not-found")
    answer = await http.delete("/echo")
    assert (answer.status_code, answer.json()["error"]) == (405, "http-405")


def test_document_contains_every_path() -> None:
    document = openapi.document(ROUTES, "/api")
    assert json.loads(json.dumps(document))["openapi"] == "3.1.0"
    assert set(document["paths"]) == {"/echo", "/fail/{code}"}
    post = document["paths"]["/echo"]["post"]
    body = post["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/RequestBody"}
    assert document["components"]["schemas"]["RequestBody"]["required"] == ["name"]
    parameters = document["paths"]["/echo"]["get"]["parameters"]
    assert [p["name"] for p in parameters] == ["limit", "offset", "sort", "format", "filename"]
