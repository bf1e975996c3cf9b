"""Whose address counts: the proxy's word is taken, a stranger's is not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler
from traitlets import TraitError

from bai_auth.authenticator import BaiAuthenticator


class AddressHandler(RequestHandler):
    def get(self) -> None:
        self.write(self.settings["authenticator"].client_address(self.request))


@pytest.fixture
async def address_of(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The URL of a server that believes the proxies of the test's parameter."""
    authenticator = BaiAuthenticator(trusted_proxies=request.param)
    application = Application([("/", AddressHandler)], authenticator=authenticator)
    listening, port = bind_unused_port()
    # As the Hub does it: headers of proxies are read.
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
