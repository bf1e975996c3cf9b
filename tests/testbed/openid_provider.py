"""An OpenID provider for tests: discovery, keys, authorization, token and userinfo endpoints.

It checks client, redirect URI, code and PKCE verifier as a real provider does. A test can make the
responses invalid.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, HTTPError, RequestHandler

CLIENT_ID, CLIENT_SECRET = "bai-hub", "secret of bai-hub: %/+"


def new_key() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


@dataclass
class OpenIdProvider:
    """``claims`` describe the user who signs in; the userinfo endpoint returns ``user_info``."""

    url: str = ""
    key: RSAPrivateKey = field(default_factory=new_key)
    key_id: str = "key-1"
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "0001"})
    user_info: dict[str, Any] = field(default_factory=dict)
    # Change the claims of the id token before it is signed.
    change: Callable[[dict[str, Any]], object] = lambda claims: None
    # Sign with this key instead of the published one.
    signing_key: Any = None
    algorithm: str = "RS256"
    issuer: str = ""
    is_down: bool = False
    denies: bool = False
    # Number of downloads of the keys.
    key_requests: int = 0
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {
            **{"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce},
            **self.claims,
        }
        self.change(claims)
        key = self.signing_key or self.key
        if self.algorithm == "none":
            key = None
        return jwt.encode(claims, key, self.algorithm, headers={"kid": self.key_id})


class _Handler(RequestHandler):
    @property
    def provider(self) -> OpenIdProvider:
        provider: OpenIdProvider = self.settings["provider"]
        return provider

    def prepare(self) -> None:
        if self.provider.is_down:
            raise HTTPError(502)


class _Discovery(_Handler):
    def get(self) -> None:
        url = self.provider.url
        self.write(
            {
                "issuer": self.provider.issuer or url,
                "authorization_endpoint": f"{url}/authorize",
                "token_endpoint": f"{url}/token",
                "userinfo_endpoint": f"{url}/userinfo",
                "jwks_uri": f"{url}/keys",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
        )


class _Keys(_Handler):
    def get(self) -> None:
        self.provider.key_requests += 1
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.provider.key.public_key()))
        self.write({"keys": [{**public, "kid": self.provider.key_id, "use": "sig"}]})


class _Authorize(_Handler):
    def get(self) -> None:
        query = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        if query["client_id"] != CLIENT_ID or query["response_type"] != "code":
            raise HTTPError(400)
        answer = {"state": query["state"]}
        if self.provider.denies:
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self.provider.codes[answer["code"]] = query
        self.redirect(f"{query['redirect_uri']}?{urlencode(answer)}")


class _Token(_Handler):
    def post(self) -> None:
        query = self.provider.codes.pop(self.get_body_argument("code"), None)
        digest = hashlib.sha256(self.get_body_argument("code_verifier").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        pair = f"{CLIENT_ID}:secret%20of%20bai-hub%3A%20%25%2F%2B"
        basic = "Basic " + base64.b64encode(pair.encode()).decode()
        if (
            query is None
            or self.request.headers.get("Authorization") != basic
            or query["redirect_uri"] != self.get_body_argument("redirect_uri")
            or (query["code_challenge"], query["code_challenge_method"]) != (challenge, "S256")
        ):
            self.set_status(400)
            self.write({"error": "invalid_grant"})
            return
        self.write(
            {
                "access_token": "access",
                "token_type": "Bearer",
                "id_token": self.provider.id_token(query["nonce"]),
            }
        )


class _UserInfo(_Handler):
    def get(self) -> None:
        if self.request.headers.get("Authorization") != "Bearer access":
            raise HTTPError(401)
        self.write({"sub": self.provider.claims["sub"], **self.provider.user_info})


@asynccontextmanager
async def serve_openid_provider() -> AsyncIterator[OpenIdProvider]:
    """Run a provider on a free port in the running event loop."""
    provider = OpenIdProvider()
    routes = [
        ("/.well-known/openid-configuration", _Discovery),
        ("/keys", _Keys),
        ("/authorize", _Authorize),
        ("/token", _Token),
        ("/userinfo", _UserInfo),
    ]
    server = HTTPServer(Application(routes, provider=provider))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    provider.url = f"http://127.0.0.1:{port}"
    try:
        yield provider
    finally:
        server.stop()
        await server.close_all_connections()
