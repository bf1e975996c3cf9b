"""Common behavior of ``Client`` and ``ServiceClient``, against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tornado.testing import bind_unused_port

from bai_services.client import Client
from bai_services.core import errors
from bai_services.service_client import ServiceClient
from tests.install.installation import write_certificate
from tests.rest_server import TOKEN, rest_server

AnyClient = Client | ServiceClient


@pytest.fixture(params=[Client, ServiceClient])
def client_class(request: pytest.FixtureRequest) -> type[AnyClient]:
    found: type[AnyClient] = request.param
    return found


@pytest.fixture
async def client(client_class: type[AnyClient]) -> AsyncIterator[AnyClient]:
    async with rest_server() as url, client_class(url, TOKEN) as client:
        yield client


async def test_body_is_sent_as_json(client: AnyClient) -> None:
    response = await client.post("/echo", {"name": "ü"})
    assert (response["method"], response["body"]) == ("POST", '{"name":"ü"}')
    assert response["headers"]["Content-Type"] == "application/json"
    assert response["headers"]["Authorization"] == "Bearer a-hub-token"


async def test_path_is_sent_unchanged_and_query_is_encoded(client: AnyClient) -> None:
    response = await client.get("/echo%2Fa%20b", path="a/b c&d=ü", timeout_seconds=5)
    assert response["uri"].startswith("/services/bai/api/v1/echo%2Fa%20b?")
    assert response["path"] == "a/b c&d=ü"
    assert (await client.delete("/echo", path="x"))["path"] == "x"


async def test_response_without_body_is_none(client: AnyClient) -> None:
    assert await client.delete("/no-content") is None


@pytest.mark.parametrize("code", sorted(errors.by_code()))
async def test_error_code_is_raised_as_its_exception(client: AnyClient, code: str) -> None:
    with pytest.raises(errors.BaiError) as caught:
        await client.get(f"/fail/{code}")
    assert type(caught.value) is errors.by_code()[code]
    assert (caught.value.message, caught.value.details) == ("message", {"limit": "4"})


@pytest.mark.parametrize(
    ("path", "cls", "text"),
    [
        ("/error-page/401", errors.NotSignedIn, "responded with status 401"),
        ("/error-page/403", errors.Forbidden, "responded with status 403"),
        ("/error-page/404", errors.NotFound, "responded with status 404"),
        ("/error-page/502", errors.Unavailable, "responded with status 502"),
        ("/error-page/503", errors.Unavailable, "responded with status 503"),
        ("/error-page/500", errors.BaiError, "responded with status 500"),
        ("/redirect", errors.BaiError, "to https://hub.example/"),
        ("/page", errors.BaiError, "does not respond like a resource manager"),
        ("/fail/bug", errors.BaiError, "^internal error$"),
    ],
)
async def test_unexpected_response_raises_the_matching_error(
    client: AnyClient, path: str, cls: type[errors.BaiError], text: str
) -> None:
    with pytest.raises(errors.BaiError, match=text) as caught:
        await client.get(path)
    assert type(caught.value) is cls


async def test_unreachable_manager_is_unavailable(client_class: type[AnyClient]) -> None:
    socket, port = bind_unused_port()
    socket.close()
    async with client_class(f"http://127.0.0.1:{port}", TOKEN) as client:
        with pytest.raises(errors.Unavailable, match=f"127.0.0.1:{port}"):
            await client.get("/echo")


async def test_certificate_that_is_not_accepted_is_the_reason(
    client_class: type[AnyClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    certificate = write_certificate(tmp_path / "tls", "localhost")
    async with rest_server(certificate) as url, client_class(url, TOKEN) as client:
        with pytest.raises(errors.Unavailable) as caught:
            await client.get("/echo")
    assert caught.value.message == (
        f"the certificate of {url} is not accepted (self-signed certificate); if it is from a "
        "certificate authority of your own, set SSL_CERT_FILE to the file of that authority's "
        "certificate"
    )


async def test_certificate_authority_of_the_environment_is_accepted_also_for_this_machine(
    client_class: type[AnyClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is set after the import, as `bai-agent join --ca-file` does."""
    certificate = write_certificate(tmp_path / "tls", "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    async with rest_server(certificate) as url, client_class(url, TOKEN) as client:
        assert (await client.get("/echo"))["method"] == "GET"


async def test_proxy_of_the_environment_is_not_used_for_this_machine(
    client_class: type[AnyClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with rest_server() as url, client_class(url, TOKEN) as client:
        assert (await client.get("/echo"))["method"] == "GET"
