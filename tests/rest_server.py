"""A server for tests of REST clients."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from bai_services.api.base import APIHandler, NotFoundHandler
from bai_services.client import Token
from bai_services.core import errors
from bai_services.core.listing import ListQuery

TOKEN = Token("a-hub-token")
NUMBERS = range(1203)


class EchoHandler(RequestHandler):
    """Respond with the request as JSON."""

    def compute_etag(self) -> None:
        return None

    def respond(self) -> None:
        self.write(
            {
                "method": self.request.method,
                "uri": self.request.uri,
                "body": self.request.body.decode(),
                "headers": dict(self.request.headers),
                "path": self.get_query_argument("path", None),
            }
        )

    get = post = put = patch = delete = respond


class ListHandler(APIHandler):
    def get(self) -> None:
        query = ListQuery.parse(self.query_arguments())
        page = NUMBERS[query.offset : query.offset + query.limit]
        self.write({"items": [{"n": n} for n in page], "total": len(NUMBERS)})


class FailHandler(APIHandler):
    def get(self, code: str) -> None:
        if code == "bug":
            raise RuntimeError("details of a bug")
        raise errors.by_code()[code]("message", limit="4")


class ErrorPageHandler(RequestHandler):
    """Respond with an error page in HTML, as a proxy does."""

    def get(self, status: str) -> None:
        self.set_status(int(status))
        self.finish("<h1>no</h1>")


class RedirectHandler(RequestHandler):
    def get(self) -> None:
        self.redirect("https://hub.example/")


class PageHandler(RequestHandler):
    def get(self) -> None:
        self.write("<h1>some other server</h1>")


class NoContentHandler(RequestHandler):
    def delete(self) -> None:
        self.set_status(204)


class StreamHandler(RequestHandler):
    async def get(self) -> None:
        for chunk in (b"one ", b"two ", b"three"):
            self.write(chunk)
            await self.flush()


PREFIX = "/services/bai/api/v1"
ROUTES = [
    (r"/echo.*", EchoHandler),
    ("/numbers", ListHandler),
    (r"/fail/([^/]+)", FailHandler),
    (r"/error-page/(\d+)", ErrorPageHandler),
    ("/redirect", RedirectHandler),
    ("/page", PageHandler),
    ("/no-content", NoContentHandler),
    ("/stream", StreamHandler),
]


@asynccontextmanager
async def rest_server(certificate: tuple[Path, Path] | None = None) -> AsyncIterator[str]:
    """Run the server, with the files of a certificate and its key; yield the URL for a client."""
    application = Application(
        [(PREFIX + pattern, handler) for pattern, handler in ROUTES],
        default_handler_class=NotFoundHandler,
    )
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
    server = HTTPServer(application, ssl_options=context)
    socket, port = bind_unused_port()
    server.add_socket(socket)
    try:
        address = "http://127.0.0.1" if context is None else "https://localhost"
        yield f"{address}:{port}/services/bai"
    finally:
        server.stop()
        await server.close_all_connections()
