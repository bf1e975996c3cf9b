"""Signed tokens of other sites: settings, verification and rejected tokens."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jupyterhub import log as hub_log
from traitlets import TraitError

from bai_auth.authenticator import BaiAuthenticator
from bai_auth.log_scrubbing import scrub_signed_tokens, without_secrets
from bai_auth.signed_tokens import InvalidToken, Site, read_sites, read_token

ISSUER = "https://campus.example.org"
KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def entry(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "campus.pem"
    file.write_bytes(PUBLIC)
    return {
        "name": "campus",
        "issuer": ISSUER,
        "audience": "bai-hub",
        "public_key_file": str(file),
        "links_email": True,
    }


@pytest.fixture
def sites(entry: dict[str, Any]) -> dict[str, Site]:
    return read_sites([entry])


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    valid = {"iss": ISSUER, "sub": "0001", "aud": "bai-hub", "jti": "a1", "iat": now}
    valid |= {"exp": now + 60, "email": "ada@campus.example", "email_verified": True}
    return {name: value for name, value in {**valid, **changes}.items() if value is not None}


def token(key: Any = KEY, algorithm: str = "ES256", **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm=algorithm)


def assembled(header: Mapping[str, Any], body: str, signature: bytes = b"x") -> str:
    """Return a token with any signature."""
    return f"{_signing_input(header, body)}.{_base64(signature)}"


def hmac_signed(header: Mapping[str, Any], body: str, key: bytes) -> str:
    signature = hmac.digest(key, _signing_input(header, body).encode(), "sha256")
    return assembled(header, body, signature)


def _signing_input(header: Mapping[str, Any], body: str) -> str:
    return f"{_base64(json.dumps(header).encode())}.{_base64(body.encode())}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def test_a_valid_token_identifies_a_user_but_has_no_role(sites: dict[str, Site]) -> None:
    accepted = read_token(sites, token(role="superadmin", domain="other", is_admin=True))
    assert accepted.user == {
        "provider": "campus",
        "issuer": ISSUER,
        "subject": "0001",
        "username": "",
        "email": "ada@campus.example",
        "is_email_verified": True,
        "full_name": "",
    }
    assert accepted.site.provider.rules["links_email"] is True
    assert read_token(sites, token()).token_hash == accepted.token_hash
    assert read_token(sites, token(jti="a2")).token_hash != accepted.token_hash


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "another-hub"},
        {"iss": "https://other.example.org"},
        {"iss": None},
        {"exp": int(time.time()) - 120, "iat": int(time.time()) - 180},
        {"exp": int(time.time()) + 86_400},
        {"iat": int(time.time()) + 86_400, "exp": int(time.time()) + 86_460},
        {"exp": float("inf")},
        {"exp": str(int(time.time()) + 60)},
        {"jti": None},
        {"jti": ""},
        {"jti": "x" * 300},
        {"jti": 1},
        {"sub": ""},
        {"sub": None},
        {"padding": "x" * 5000},
    ],
)
def test_invalid_claims_are_rejected(sites: dict[str, Site], changes: dict[str, Any]) -> None:
    signed = token(**changes)
    with pytest.raises(InvalidToken):
        read_token(sites, signed)


def test_only_signatures_with_the_key_of_the_issuer_are_accepted(sites: dict[str, Site]) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    body = json.dumps(claims())
    for forged in (
        token(other),
        assembled({"alg": "none"}, body, b""),
        # HMAC with the public key as secret.
        hmac_signed({"alg": "HS256", "typ": "JWT"}, body, PUBLIC),
        "",
        "x.y.z",
        assembled({"alg": "ES256"}, "[" * 2500),
        token()[:-4],
    ):
        with pytest.raises(InvalidToken) as caught:
            read_token(sites, forged)
        assert forged == "" or forged not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"audience": None}, "audience is missing"),
        ({"public_key_file": None}, "public_key_file is missing"),
        ({"public_key_file": "/nothing.pem"}, "public_key_file"),
        ({"client_secret_env": "HOME"}, "unknown setting"),
        ({"role": "admin"}, "unknown setting"),
        ({"issuer": "http://campus.example.org"}, "https"),
        ({"creates_accounts": True}, "domain"),
    ],
)
def test_invalid_settings_stop_the_hub(
    entry: dict[str, Any], changes: dict[str, Any], match: str
) -> None:
    changed = {key: value for key, value in {**entry, **changes}.items() if value is not None}
    authenticator = BaiAuthenticator(signed_token_sites=[changed])
    with pytest.raises(TraitError, match=match):
        _ = authenticator.signed_token_sites_by_issuer


def test_tokens_are_hidden_in_the_logs() -> None:
    address = "/hub/token-login?sToken=abc.def&next=/x"
    assert "abc" not in without_secrets(address)
    scrub_signed_tokens()
    assert "abc" not in hub_log._scrub_uri(address)  # noqa: SLF001
