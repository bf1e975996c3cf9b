"""Own host names of endpoints follow the same rules as their paths."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Bed, Upstream, both_engines, endpoint_route

pytestmark = both_engines
DOMAIN = "serve.example.org"


@pytest.fixture
async def named(bed: Bed) -> Upstream:
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route(secret="s3cret")))
    await bed.gateway(domain=DOMAIN.encode())
    await bed.ready()
    return upstream


async def call(bed: Bed, host: str, path: str, **headers: str) -> tuple[int, Any]:
    address = f"http://127.0.0.1:{bed.gateways[0].port}{path}"
    async with bed.http.get(address, headers={"Host": host, **headers}) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("host", ["chat.serve.example.org", "CHAT.Serve.Example.org:8443"])
@pytest.mark.parametrize(
    "path", ["/v1/models?a=%20b", "/", "/metrics", "/services/bai-serve/chat/x"]
)
async def test_endpoint_is_at_its_host_name(
    bed: Bed, named: Upstream, host: str, path: str
) -> None:
    status, document = await call(bed, host, path)
    assert (status, document.get("path")) == (200, path)
    assert document["headers"]["authorization"] == "token s3cret"
    if bed.engine == "haproxy":
        assert not bed.gateways[0].connections


async def test_unknown_host_names_below_the_domain_are_refused(bed: Bed, named: Upstream) -> None:
    for host in (f"other.{DOMAIN}", f"a.chat.{DOMAIN}", f"chat.x.{DOMAIN}", f".{DOMAIN}"):
        for path in ("/", "/services/bai-serve/chat/", "/hub/home", "/services/bai/api/v1/me"):
            assert (await call(bed, host, path))[0] == 404
    # At hosts that are not below the domain, endpoints are reached by their paths.
    for host in (DOMAIN, f"chat{DOMAIN}", "hub.example.org"):
        assert (await call(bed, host, "/"))[0] == 404
        assert (await call(bed, host, "/services/bai-serve/chat/x"))[0] == 200
    assert [request.path for request in named.requests] == ["/x"] * 3


async def test_token_is_checked_at_a_host_name(bed: Bed, named: Upstream) -> None:
    status, _ = await call(bed, f"chat.{DOMAIN}", "/x", Authorization="Bearer wrong")
    assert status == 401
    assert not named.requests
