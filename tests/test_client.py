"""The REST client against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from bai_services.api.base import APIHandler, NotFoundHandler
from bai_services.client import Client, Keypair, Token
from bai_services.core import errors
from bai_services.core.accounts import signature
from bai_services.core.listing import ListQuery

TOKEN = Token("a-hub-token")
KEYPAIR = Keypair("AKEXAMPLE", "the-secret-key")
NUMBERS = range(1203)


class EchoHandler(RequestHandler):
    """Answers with what arrived."""

    def compute_etag(self) -> None:
        return None

    def answer(self) -> None:
        self.write(
            {
                "method": self.request.method,
                "uri": self.request.uri,
                "body": self.request.body.decode(),
                "headers": dict(self.request.headers),
                "path": self.get_query_argument("path", None),
            }
        )

    get = post = put = patch = delete = answer


class ListHandler(APIHandler):
    def get(self) -> None:
        query = ListQuery.parse(self.query_arguments())
        page = NUMBERS[query.offset : query.offset + query.limit]
        self.write({"items": [{"n": n} for n in page], "total": len(NUMBERS)})


class FailHandler(APIHandler):
    def get(self, code: str) -> None:
        if code == "bug":
            raise RuntimeError("told to nobody")
        raise errors.by_code()[code]("told so", limit="4")


class ForeignHandler(RequestHandler):
    """Answers as the proxy does: no JSON of ours."""

    def get(self, status: str) -> None:
        self.set_status(int(status))
        self.finish("<h1>no</h1>")


class ElsewhereHandler(RequestHandler):
    def get(self) -> None:
        self.redirect("https://hub.example/")


class PageHandler(RequestHandler):
    def get(self) -> None:
        self.write("<h1>some other server</h1>")


class NothingHandler(RequestHandler):
    def delete(self) -> None:
        self.set_status(204)


class StreamHandler(RequestHandler):
    async def get(self) -> None:
        for piece in (b"one ", b"two ", b"three"):
            self.write(piece)
            await self.flush()


PREFIX = "/services/bai/api/v1"
ROUTES = [
    (r"/echo.*", EchoHandler),
    ("/numbers", ListHandler),
    (r"/fail/([^/]+)", FailHandler),
    (r"/foreign/(\d+)", ForeignHandler),
    ("/elsewhere", ElsewhereHandler),
    ("/page", PageHandler),
    ("/nothing", NothingHandler),
    ("/stream", StreamHandler),
]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    application = Application(
        [(PREFIX + pattern, handler) for pattern, handler in ROUTES],
        default_handler_class=NotFoundHandler,
    )
    server = HTTPServer(application)
    socket, port = bind_unused_port()
    server.add_socket(socket)
    yield f"http://127.0.0.1:{port}/services/bai"
    server.stop()
    await server.close_all_connections()


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with Client(url, TOKEN) as client:
        yield client


@pytest.mark.parametrize("method", ["post", "put", "patch"])
async def test_a_body_arrives_as_json(client: Client, method: str) -> None:
    answer = await getattr(client, method)("/echo", {"name": "ü"})
    assert (answer["method"], answer["body"]) == (method.upper(), '{"name":"ü"}')
    assert answer["headers"]["Content-Type"] == "application/json"


async def test_a_query_may_use_every_name(client: Client) -> None:
    answer = await client.get("/echo", path="a/b c.txt", timeout="5")
    assert answer["path"] == "a/b c.txt"
    assert (await client.delete("/echo", path="x"))["path"] == "x"


async def test_a_token_is_sent(client: Client) -> None:
    assert (await client.get("/echo"))["headers"]["Authorization"] == "Bearer a-hub-token"


async def test_without_a_credential_none_is_sent(url: str) -> None:
    async with Client(url) as client:
        assert "Authorization" not in (await client.get("/echo"))["headers"]


@pytest.mark.parametrize("body", [None, {"a": 1}], ids=["without a body", "with a body"])
async def test_a_keypair_signs_what_is_sent(url: str, body: Any) -> None:
    async with Client(url, KEYPAIR) as client:
        answer = await client.call("POST", "/echo%2Fx", body=body, query={"name": "ü &", "b": "1"})
    headers = answer["headers"]
    access_key, given = signature.parse_authorization(headers["Authorization"])
    date = datetime.fromisoformat(headers["Date"])
    expected = signature.sign(
        KEYPAIR.secret_key,
        method="POST",
        path=answer["uri"],
        host=headers["Host"],
        date=date,
        content_type=headers.get("Content-Type", ""),
        content_digest=headers.get("Content-Digest", ""),
    )
    assert ("Content-Digest" in headers) == (body is not None)
    assert (access_key, given) == ("AKEXAMPLE", expected)
    signature.check_date(date, datetime.now(UTC))


async def test_items_reads_every_page(client: Client) -> None:
    assert [item["n"] async for item in client.items("/numbers")] == list(NUMBERS)


async def test_an_answer_without_a_body_is_none(client: Client) -> None:
    assert await client.delete("/nothing") is None


@pytest.mark.parametrize("code", sorted(errors.by_code()))
async def test_an_error_comes_back_as_what_it_was(client: Client, code: str) -> None:
    with pytest.raises(errors.BaiError) as caught:
        await client.get(f"/fail/{code}")
    assert type(caught.value) is errors.by_code()[code]
    assert (caught.value.message, caught.value.details) == ("told so", {"limit": "4"})


async def test_a_defect_is_an_error_without_facts(client: Client) -> None:
    with pytest.raises(errors.BaiError, match="^internal error$"):
        await client.get("/fail/bug")


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (401, errors.NotSignedIn),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (502, errors.Unavailable),
        (503, errors.Unavailable),
        (500, errors.BaiError),
    ],
)
async def test_an_answer_in_the_managers_place_is_read_by_its_status(
    client: Client, status: int, cls: type[errors.BaiError]
) -> None:
    with pytest.raises(errors.BaiError) as caught:
        await client.get(f"/foreign/{status}")
    assert type(caught.value) is cls


@pytest.mark.parametrize(
    ("path", "text"), [("/elsewhere", "to https://hub.example/"), ("/page", "does not answer as")]
)
async def test_another_server_is_told_apart(client: Client, path: str, text: str) -> None:
    with pytest.raises(errors.BaiError, match=text):
        await client.get(path)


async def test_a_manager_that_is_away_is_unavailable() -> None:
    socket, port = bind_unused_port()
    socket.close()
    async with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
        with pytest.raises(errors.Unavailable, match=f"127.0.0.1:{port}"):
            await client.get("/echo")
        with pytest.raises(errors.Unavailable):
            async with client.stream("/echo"):
                pass


async def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with Client(url, TOKEN) as client:
        assert (await client.get("/echo"))["method"] == "GET"


async def test_a_stream_is_read_bit_by_bit(client: Client) -> None:
    async with client.stream("/stream") as response:
        assert b"".join([piece async for piece in response.aiter_bytes()]) == b"one two three"


async def test_a_stream_that_is_refused_raises(client: Client) -> None:
    with pytest.raises(errors.NotFound, match="told so"):
        async with client.stream("/fail/not-found"):
            pass


async def test_content_is_sent_as_it_comes(client: Client) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one ", b"two"):
            yield piece

    answer = await client.call("PUT", "/echo", content=pieces())
    assert answer["body"] == "one two"


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(KEYPAIR)
    assert "a-hub-token" not in repr(TOKEN)
