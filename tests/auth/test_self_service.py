"""Settings of the self-service pages, and the conditions under which links to them are shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from bai_auth.authenticator import BaiAuthenticator
from bai_auth.self_service import Document, SelfService
from bai_services.client import Token
from bai_services.service_client import ServiceClient
from tests.testbed.manager import HUB_TOKEN, Api
from tests.testbed.ports import free_port

PAGES = {"/forgot-password", "/reset-password", "/sign-up", "/verify-email", "/delete-account"}


def app(public_url: str = "") -> Any:
    return SimpleNamespace(public_url=public_url, hub_prefix="/base/hub/")


def routes(
    tmp_path: Path, public_url: str = "", providers: Sequence[Any] = (), **settings: object
) -> set[str]:
    """Return which of ``PAGES`` a Hub with the settings serves."""
    (tmp_path / "token").write_text("x")
    config = Config({"SelfService": settings})
    authenticator = BaiAuthenticator(
        config=config,
        manager_url="http://127.0.0.1:1",
        hub_token_file=str(tmp_path / "token"),
        openid_providers=list(providers),
    )
    return {path for path, _ in authenticator.get_handlers(app(public_url))} & PAGES


def test_everything_is_off_by_default(tmp_path: Path) -> None:
    assert routes(tmp_path) == set()
    service = SelfService()
    assert service.sign_up_needs_invitation and service.sign_up_verifies_email
    assert service.sign_up_needs_approval and not service.sends_mails


def test_pages_that_send_mails_need_the_public_url(tmp_path: Path) -> None:
    for settings in ({"password_reset": True}, {"sign_up": True}):
        with pytest.raises(TraitError, match="public_url"):
            routes(tmp_path, **settings)
    with pytest.raises(TraitError, match="public_url"):
        routes(tmp_path, "hub.example.org", password_reset=True)
    url = "https://hub.example.org/base/"
    assert routes(tmp_path, account_deletion=True) == {"/delete-account"}
    assert routes(tmp_path, url, password_reset=True) == {"/forgot-password", "/reset-password"}
    assert routes(tmp_path, sign_up=True, sign_up_verifies_email=False) == {
        "/sign-up",
        "/verify-email",
    }


def test_accounts_with_unverified_addresses_are_not_linked_by_address(tmp_path: Path) -> None:
    # An attacker could sign up with a victim's address. The victim's identity would then be linked
    # to an account whose password the attacker knows.
    provider = {"name": "uni", "issuer": "https://sso.example.org", "client_id": "x"}
    links = [{**provider, "links_email": True}]
    url = "https://hub.example.org/"
    with pytest.raises(TraitError, match="links_email"):
        routes(tmp_path, url, links, sign_up=True, sign_up_verifies_email=False)
    assert routes(tmp_path, url, links, sign_up=True)
    assert routes(tmp_path, url, [provider], sign_up=True, sign_up_verifies_email=False)
    assert not routes(tmp_path, url, links, sign_up_verifies_email=False)


def test_links_lead_to_the_configured_address() -> None:
    service = SelfService(password_reset=True)
    service.require_valid(app("https://hub.example.org/base/"))
    assert service.page_url("reset-password") == "https://hub.example.org/base/hub/reset-password"
    other = SelfService(password_reset=True, public_url="https://other.example.org")
    other.require_valid(app("https://hub.example.org/base/"))
    assert other.page_url("x") == "https://other.example.org/base/hub/x"


@pytest.mark.parametrize(
    ("text", "is_link"),
    [
        ("https://example.org/terms", True),
        ("http://example.org/terms", True),
        ("javascript:alert(1)", False),
        ("https://example.org has the terms", False),
        ("Be kind.", False),
    ],
)
def test_a_document_is_a_link_or_a_text(text: str, is_link: bool) -> None:
    assert Document(text).is_link is is_link


async def test_a_link_is_offered_only_if_mails_can_be_sent(api: Api) -> None:
    async with ServiceClient(api.url, Token(HUB_TOKEN)) as client:
        # The manager of this test has no mail server.
        service = SelfService(password_reset=True, sign_up=True)
        assert await service.offers(client) == frozenset()
        assert await SelfService(sign_up=True, sign_up_verifies_email=False).offers(client) == {
            "sign_up"
        }
        assert await SelfService().offers(client) == frozenset()
    async with ServiceClient(f"http://127.0.0.1:{free_port()}/services/bai", Token("x")) as client:
        assert await SelfService(password_reset=True).offers(client) == frozenset()
