"""Client addresses: headers of a trusted proxy are used, those of a stranger are not."""

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
from bai_services.client_address import TrustedProxies, interface_addresses


class AddressHandler(RequestHandler):
    def get(self) -> None:
        self.write(self.settings["authenticator"].client_address(self.request))


@pytest.fixture
async def address_of(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Return the URL of a server that trusts the proxies of the test's parameter."""
    authenticator = BaiAuthenticator(trusted_proxies=request.param)
    application = Application([("/", AddressHandler)], authenticator=authenticator)
    listening, port = bind_unused_port()
    # As the Hub does: it evaluates proxy headers.
    server = HTTPServer(application, xheaders=True)
    server.add_socket(listening)
    yield f"http://127.0.0.1:{port}/"
    server.stop()
    await server.close_all_connections()


FORGED = {"X-Forwarded-For": "10.9.8.7"}


@pytest.mark.parametrize("address_of", [{"127.0.0.1"}], indirect=True)
async def test_the_proxy_names_the_client(address_of: str) -> None:
    async with httpx.AsyncClient() as client:
        assert (await client.get(address_of, headers=FORGED)).text == "10.9.8.7"
        assert (await client.get(address_of)).text == "127.0.0.1"


@pytest.mark.parametrize("address_of", [{"192.0.2.1"}], indirect=True)
async def test_a_stranger_cannot_pretend_to_come_from_elsewhere(address_of: str) -> None:
    async with httpx.AsyncClient() as client:
        assert (await client.get(address_of, headers=FORGED)).text == "127.0.0.1"


@pytest.mark.parametrize("address_of", [{"own"}], indirect=True)
async def test_x_real_ip_is_ignored(address_of: str) -> None:
    headers = {"X-Forwarded-For": "192.0.2.7", "X-Real-Ip": "10.9.8.7"}
    async with httpx.AsyncClient() as client:
        assert (await client.get(address_of, headers=headers)).text == "192.0.2.7"


OWN_ADDRESS = "198.51.100.9"


@pytest.mark.parametrize(
    "trusted, peer, forwarded, found",
    [
        pytest.param(["own"], OWN_ADDRESS, "10.0.0.9", "10.0.0.9", id="masqueraded proxy"),
        pytest.param(["own"], "127.0.0.1", "10.0.0.9", "10.0.0.9", id="loopback proxy"),
        pytest.param(["own"], "10.213.0.2", "10.0.0.9", "10.213.0.2", id="a container"),
        pytest.param(["own"], "::1", "::ffff:10.0.0.9", "10.0.0.9", id="a proxy on ::"),
        pytest.param([], "127.0.0.1", "10.0.0.9", "127.0.0.1", id="nobody is believed"),
        pytest.param(
            ["own"], "127.0.0.1", f"10.0.0.9, {OWN_ADDRESS}", OWN_ADDRESS, id="forged from here"
        ),
        pytest.param(
            ["own", "10.1.0.0/24"],
            "127.0.0.1",
            "6.6.6.6, 10.0.0.9, 10.1.0.3",
            "10.0.0.9",
            id="a named proxy in front of ours",
        ),
        pytest.param(["own"], "127.0.0.1", "unknown", "127.0.0.1", id="no address"),
        pytest.param(["own"], "127.0.0.1", " ", "127.0.0.1", id="empty"),
    ],
)
def test_trusted_forwarded_headers(
    trusted: list[str], peer: str, forwarded: str, found: str
) -> None:
    own = frozenset({ipaddress.ip_address(OWN_ADDRESS)})
    proxies = replace(TrustedProxies.parse(trusted), read_addresses=lambda: own)
    assert proxies.client_address(peer, forwarded) == found


def test_own_addresses_are_those_of_the_interfaces() -> None:
    assert ipaddress.ip_address("127.0.0.1") in interface_addresses()


def test_a_wrong_proxy_ends_the_start_and_is_named() -> None:
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
    ids=["no address", "no file named", "no such file", "an empty file"],
)
def test_a_wrong_setting_ends_the_start_and_is_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(TraitError, match=named):
        BaiAuthenticator(**settings).get_handlers(None)
