"""OpenID Connect: settings, authorization code flow, and rejected id tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from traitlets import TraitError

from bai_auth.authenticator import BaiAuthenticator
from bai_auth.openid.client import (
    MIN_KEYS_SECONDS,
    Flow,
    InvalidResponse,
    OpenIdClient,
    ProviderUnavailable,
    external_user,
)
from bai_auth.openid.settings import Provider, read_providers
from tests.testbed.openid_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    OpenIdProvider,
    new_key,
    serve_openid_provider,
)

CALLBACK = "http://hub.example/hub/openid/uni/callback"
ENTRY: dict[str, Any] = {"name": "uni", "issuer": "https://sso.example.org", "client_id": "x"}


@pytest.fixture
async def provider() -> AsyncIterator[OpenIdProvider]:
    async with serve_openid_provider() as running:
        running.claims |= {"preferred_username": "ada", "email": "ada@uni.example"}
        yield running


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def client(provider: OpenIdProvider, now: Time) -> OpenIdClient:
    settings = Provider(
        name="uni", issuer=provider.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET
    )
    return OpenIdClient(settings, now)


async def code_of(client: OpenIdClient, flow: Flow) -> str:
    """Authorize at the provider, as a browser does; return the code."""
    url = await client.authorization_url(flow, CALLBACK)
    async with httpx.AsyncClient() as browser:
        answer = await browser.get(url)
    query = parse_qs(urlsplit(answer.headers["Location"]).query)
    assert query["state"] == [flow.state]
    return query["code"][0]


async def claims_of(client: OpenIdClient) -> dict[str, Any]:
    flow = Flow()
    return await client.claims(flow, await code_of(client, flow), CALLBACK)


async def test_the_claims_of_a_valid_id_token_are_returned(
    client: OpenIdClient, provider: OpenIdProvider
) -> None:
    claims = await claims_of(client)
    user = external_user(client.provider, claims)
    assert user == {
        "provider": "uni",
        "issuer": provider.url,
        "subject": "0001",
        "username": "ada",
        "email": "ada@uni.example",
        "is_email_verified": False,
        "full_name": "",
    }
    await claims_of(client)
    assert provider.key_requests == 1


async def test_missing_claims_are_read_from_the_userinfo_endpoint(
    client: OpenIdClient, provider: OpenIdProvider
) -> None:
    del provider.claims["email"]
    provider.user_info = {"email": "ada@uni.example", "email_verified": True, "nonce": "x"}
    claims = await claims_of(client)
    assert external_user(client.provider, claims)["is_email_verified"] is True
    provider.user_info["sub"] = "0002"
    with pytest.raises(InvalidResponse, match="another user"):
        await claims_of(client)


async def test_the_userinfo_endpoint_does_not_verify_the_address_of_the_id_token(
    client: OpenIdClient, provider: OpenIdProvider
) -> None:
    provider.claims |= {"email": "victim@uni.example"}
    provider.claims.pop("preferred_username", None)
    provider.user_info = {
        "email": "ada@uni.example",
        "email_verified": True,
        "preferred_username": "ada",
    }
    found = external_user(client.provider, await claims_of(client))
    assert (found["email"], found["is_email_verified"]) == ("victim@uni.example", False)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"nonce": "another"}, id="wrong nonce"),
        pytest.param({"nonce": None}, id="no nonce"),
        pytest.param({"exp": 1_000_000_000}, id="expired"),
        pytest.param({"exp": None}, id="no expiry"),
        pytest.param({"iat": 4_000_000_000}, id="issued in the future"),
        pytest.param({"aud": "another-client"}, id="wrong audience"),
        pytest.param({"aud": [CLIENT_ID, "another-client"]}, id="several audiences without azp"),
        pytest.param({"azp": "another-client"}, id="for another client"),
        pytest.param({"iss": "https://evil.example"}, id="wrong issuer"),
        pytest.param({"sub": ""}, id="empty subject"),
        pytest.param({"sub": None}, id="no subject"),
        pytest.param({"sub": "x" * 256}, id="long subject"),
    ],
)
async def test_an_id_token_with_wrong_claims_is_rejected(
    client: OpenIdClient, provider: OpenIdProvider, change: dict[str, Any]
) -> None:
    def apply(claims: dict[str, Any]) -> None:
        claims.update(change)
        for name in [name for name, value in change.items() if value is None]:
            del claims[name]

    provider.change = apply
    with pytest.raises(InvalidResponse):
        await claims_of(client)


@pytest.mark.parametrize("algorithm", ["RS256", "none", "HS256"])
async def test_an_id_token_with_a_wrong_signature_is_rejected(
    client: OpenIdClient, provider: OpenIdProvider, algorithm: str
) -> None:
    provider.algorithm = algorithm
    provider.signing_key = new_key() if algorithm == "RS256" else CLIENT_SECRET.ljust(32, "x")
    with pytest.raises(InvalidResponse):
        await claims_of(client)


async def test_new_keys_are_downloaded_but_not_for_each_unknown_key(
    client: OpenIdClient, provider: OpenIdProvider, now: Time
) -> None:
    await claims_of(client)
    provider.key, provider.key_id = new_key(), "key-2"
    for _ in range(3):
        with pytest.raises(InvalidResponse, match="unknown key"):
            await claims_of(client)
    assert provider.key_requests == 1
    now.now += MIN_KEYS_SECONDS
    await claims_of(client)
    assert provider.key_requests == 2


async def test_a_code_is_redeemed_once_and_only_with_the_same_verifier(
    client: OpenIdClient,
) -> None:
    flow = Flow()
    code = await code_of(client, flow)
    with pytest.raises(InvalidResponse, match="invalid_grant"):
        await client.claims(Flow(flow.state, flow.nonce), code, CALLBACK)
    code = await code_of(client, flow)
    await client.claims(flow, code, CALLBACK)
    with pytest.raises(InvalidResponse, match="invalid_grant"):
        await client.claims(flow, code, CALLBACK)


async def test_an_unavailable_provider_is_not_queried_again_at_once(
    client: OpenIdClient, provider: OpenIdProvider, now: Time
) -> None:
    provider.is_down = True
    with pytest.raises(ProviderUnavailable):
        await client.authorization_url(Flow(), CALLBACK)
    provider.is_down = False
    with pytest.raises(ProviderUnavailable):
        await client.authorization_url(Flow(), CALLBACK)
    now.now += 10
    flow = Flow()
    code = await code_of(client, flow)
    provider.is_down = True
    with pytest.raises(ProviderUnavailable):
        await client.claims(flow, code, CALLBACK)


async def test_metadata_of_another_issuer_is_rejected(
    client: OpenIdClient, provider: OpenIdProvider
) -> None:
    provider.issuer = "https://sso.example.org"
    with pytest.raises(ProviderUnavailable, match="another issuer"):
        await client.authorization_url(Flow(), CALLBACK)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"name": "Uni"}, "the name must be"),
        ({"issuer": ""}, "issuer is missing"),
        ({"issuer": "http://sso.example.org"}, "must begin with https://"),
        ({"scopes": ["profile"]}, "must include openid"),
        ({"creates_accounts": True}, "needs the domain"),
        ({"creates_accounts": "yes"}, "must be a flag"),
        ({"client_secret": "x"}, "unknown setting 'client_secret'"),
        ({"client_secret_env": "NO_SUCH_VARIABLE"}, "the client secret is empty"),
        ({"client_secret_file": "/no/such/file"}, "No such file"),
    ],
)
def test_invalid_settings_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"provider .*{message}"):
        read_providers([{**ENTRY, **changes}])


def test_the_secret_is_read_from_a_file_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("very secret\n")
    (provider,) = read_providers([{**ENTRY, "client_secret_file": str(path)}]).values()
    assert (provider.client_secret, provider.title) == ("very secret", "uni")
    assert "very secret" not in repr(provider)
    with pytest.raises(TraitError, match="listed twice"):
        _ = BaiAuthenticator(openid_providers=[ENTRY, ENTRY]).openid_clients


@pytest.mark.parametrize(
    "claims, username",
    [({"preferred_username": "Ada@uni.example"}, "Ada"), ({"preferred_username": 5}, ""), ({}, "")],
)
def test_the_user_name_is_the_part_before_the_at_sign(
    claims: dict[str, Any], username: str
) -> None:
    provider = Provider(name="uni", issuer="https://sso.example.org", client_id="x")
    assert external_user(provider, {"sub": "1", **claims})["username"] == username
