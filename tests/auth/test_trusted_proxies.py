"""Client addresses behind proxies, and validation of the authenticator's settings."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler
from traitlets import TraitError

from bai_auth.authenticator import BaiAuthenticator
from bai_services.trusted_proxies import TrustedProxies, interface_addresses


class AddressHandler(RequestHandler):
    def get(self) -> None:
        self.write(self.settings["authenticator"].client_address(self.request))


@pytest.fixture
async def address_of(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Yield the URL of a server that returns the client address of each request.

    The test parameter is the set of proxies that the server's authenticator trusts.
    """
    authenticator = BaiAuthenticator(trusted_proxies=request.param)
    application = Application([("/", AddressHandler)], authenticator=authenticator)
    listening, port = bind_unused_port()
    # Like the Hub's own server, this server evaluates proxy headers before the authenticator.
    server = HTTPServer(application, xheaders=True)
    server.add_socket(listening)
    yield f"http://127.0.0.1:{port}/"
    server.stop()
    await server.close_all_connections()


FORGED = {"X-Forwarded-For": "10.9.8.7"}


@pytest.mark.parametrize("address_of", [{"127.0.0.1"}], indirect=True)
async def test_trusted_proxy_reports_the_client_address(address_of: str) -> None:
    async with httpx.AsyncClient() as client:
        assert (await client.get(address_of, headers=FORGED)).text == "10.9.8.7"
        assert (await client.get(address_of)).text == "127.0.0.1"


@pytest.mark.parametrize("address_of", [{"192.0.2.1"}], indirect=True)
async def test_headers_of_an_untrusted_peer_are_ignored(address_of: str) -> None:
    async with httpx.AsyncClient() as client:
        assert (await client.get(address_of, headers=FORGED)).text == "127.0.0.1"


@pytest.mark.parametrize("address_of", [{"own"}], indirect=True)
async def test_x_real_ip_is_ignored(address_of: str) -> None:
    headers = {"X-Forwarded-For": "192.0.2.7", "X-Real-Ip": "10.9.8.7"}
    async with httpx.AsyncClient() as client:
        assert (await client.get(address_of, headers=headers)).text == "192.0.2.7"


OWN_ADDRESS = "198.51.100.9"


@pytest.mark.parametrize(
    "trusted, peer, forwarded, address",
    [
        pytest.param(
            ["own"],
            OWN_ADDRESS,
            "10.0.0.9",
            "10.0.0.9",
            id="own proxy with an address of the machine",
        ),
        pytest.param(
            ["own"], "127.0.0.1", "10.0.0.9", "10.0.0.9", id="own proxy with the loopback address"
        ),
        pytest.param(
            ["own"], "10.213.0.2", "10.0.0.9", "10.213.0.2", id="container is not trusted"
        ),
        pytest.param(
            ["own"],
            "::1",
            "::ffff:10.0.0.9",
            "10.0.0.9",
            id="client address is IPv4-mapped, own proxy with IPv6 loopback",
        ),
        pytest.param([], "127.0.0.1", "10.0.0.9", "127.0.0.1", id="no proxy is trusted"),
        pytest.param(
            ["own"],
            "127.0.0.1",
            f"10.0.0.9, {OWN_ADDRESS}",
            OWN_ADDRESS,
            id="client address equal to an address of the machine is not skipped",
        ),
        pytest.param(
            ["own", "10.1.0.0/24"],
            "127.0.0.1",
            "6.6.6.6, 10.0.0.9, 10.1.0.3",
            "10.0.0.9",
            id="listed proxy in front of the Hub's proxy",
        ),
        pytest.param(
            ["own"], "127.0.0.1", "unknown", "127.0.0.1", id="invalid address in the header"
        ),
        pytest.param(["own"], "127.0.0.1", " ", "127.0.0.1", id="empty header"),
    ],
)
def test_client_address_is_taken_only_from_headers_of_trusted_proxies(
    trusted: list[str], peer: str, forwarded: str, address: str
) -> None:
    own = frozenset({ipaddress.ip_address(OWN_ADDRESS)})
    proxies = replace(TrustedProxies.parse(trusted), read_addresses=lambda: own)
    assert proxies.client_address(peer, forwarded) == address


def test_own_addresses_include_the_loopback_interface() -> None:
    assert ipaddress.ip_address("127.0.0.1") in interface_addresses()


def test_invalid_trusted_proxy_prevents_the_start() -> None:
    with pytest.raises(TraitError, match="trusted_proxies: 'nginx'"):
        BaiAuthenticator(
            manager_url="http://m", hub_token_file=__file__, trusted_proxies={"nginx"}
        ).get_handlers(None)


@pytest.mark.parametrize(
    "settings, named",
    [
        ({"manager_url": "", "hub_token_file": "/x"}, "manager_url"),
        ({"manager_url": "http://m", "hub_token_file": ""}, "hub_token_file"),
        ({"manager_url": "http://m", "hub_token_file": "/no/such"}, "BAI_HUB_TOKEN_FILE"),
        ({"manager_url": "http://m", "hub_token_file": "/dev/null"}, "BAI_HUB_TOKEN_FILE"),
    ],
    ids=[
        "manager_url is not set",
        "hub_token_file is not set",
        "token file does not exist",
        "token file is empty",
    ],
)
def test_invalid_setting_prevents_the_start(settings: dict[str, str], named: str) -> None:
    with pytest.raises(TraitError, match=named):
        BaiAuthenticator(**settings).get_handlers(None)
