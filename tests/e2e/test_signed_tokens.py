"""Sign-in with a signed token of another site on a real Hub."""

from __future__ import annotations

import secrets
import time
from http import HTTPStatus
from typing import Any

import httpx
import jwt
import pytest

from bai_services.i18n.catalogue import translator
from tests.e2e.sessions import checked
from tests.hub import RunningHub

pytestmark = pytest.mark.e2e

REFUSED = translator("en")("openid.invalid_token")


def token_for(hub: RunningHub, name: str, **changes: Any) -> str:
    now = int(time.time())
    claims = {
        "iss": "https://campus.example.org",
        "aud": "bai-hub",
        "sub": name,
        "jti": secrets.token_hex(8),
        "iat": now,
        "exp": now + 120,
        "preferred_username": name,
        "email": f"{name}@campus.example",
        "email_verified": True,
        "role": "superadmin",
    }
    return jwt.encode({**claims, **changes}, (hub.home / "site.key").read_bytes(), "ES256")


def open_link(hub: RunningHub, browser: httpx.Client, token: str, target: str) -> httpx.Response:
    return browser.get(f"{hub.url}/hub/token-login", params={"sToken": token, "next": target})


@pytest.mark.checklist("AUTH-06")
def test_a_token_signs_a_user_in_once(hub: RunningHub) -> None:
    name = f"token-{secrets.token_hex(4)}"
    token = token_for(hub, name)
    try:
        with httpx.Client(headers={"Accept-Language": "en"}) as browser:
            assert open_link(hub, browser, token_for(hub, name, aud="x"), "").status_code == 403
            answer = open_link(hub, browser, token, "/hub/home?tab=1")
            assert answer.status_code == HTTPStatus.FOUND
            # The URL of the page after the sign-in does not contain the token.
            assert answer.headers["Location"] == "/hub/home?tab=1"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert name in browser.get(f"{hub.url}/hub/home").text
            # A signed-in browser stays signed in as the same user.
            other = token_for(hub, f"{name}-2")
            answer = open_link(hub, browser, other, "https://evil.example/")
            assert "evil" not in answer.headers["Location"]
            assert "sToken" not in answer.headers["Location"]
            assert name in browser.get(f"{hub.url}/hub/home").text
        with hub.rest("admin") as admin:
            user = checked(admin.get(f"/users/{name}"), 200)
            assert (user["role"], user["domain"]) == ("user", "default")
            assert admin.get(f"/users/{name}-2").status_code == HTTPStatus.NOT_FOUND
        with httpx.Client(headers={"Accept-Language": "en"}) as thief:
            again = open_link(hub, thief, token, "/hub/home")
            assert again.status_code == HTTPStatus.FORBIDDEN
            assert REFUSED in again.text
            image = {"Sec-Fetch-Dest": "image", "Sec-Fetch-Mode": "no-cors"}
            params = {"sToken": token_for(hub, name)}
            hidden = thief.get(f"{hub.url}/hub/token-login", params=params, headers=image)
            assert hidden.status_code == HTTPStatus.FORBIDDEN
            assert "jupyterhub-session-id" not in hidden.headers.get("Set-Cookie", "")
        assert token not in hub.logs()
    finally:
        with hub.rest("admin") as admin:
            admin.delete(f"/users/{name}")
