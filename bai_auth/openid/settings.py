"""The operator's settings of OpenID providers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bai_services.client import is_loopback

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_TEXTS = (
    *("name", "title", "issuer", "client_id", "client_secret_file", "client_secret_env"),
    *("username_claim", "callback_url", "domain"),
)
_LISTS = ("scopes", "projects")
_FLAGS = ("creates_accounts", "trusts_email", "links_email", "skips_one_time_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One entry of ``BaiAuthenticator.openid_providers``; see docs/admin-guide/sign-in.md."""

    name: str
    issuer: str
    client_id: str
    title: str = ""
    client_secret: str = field(default="", repr=False)
    scopes: Sequence[str] = ("openid", "profile", "email")
    username_claim: str = "preferred_username"
    callback_url: str = ""
    creates_accounts: bool = False
    domain: str = ""
    projects: Sequence[str] = ()
    trusts_email: bool = False
    links_email: bool = False
    skips_one_time_code: bool = False

    @property
    def rules(self) -> dict[str, Any]:
        """The rules that the manager applies."""
        return {
            "creates_accounts": self.creates_accounts,
            "domain": self.domain,
            "projects": list(self.projects),
            "links_email": self.links_email,
            "skips_code": self.skips_one_time_code,
        }


def read_providers(entries: Sequence[Mapping[str, Any]]) -> dict[str, Provider]:
    """Return the providers by name, with their secrets.

    Raises
    ------
    ValueError
        If an entry is invalid, or a secret cannot be read; the message names the provider.
    """
    providers: dict[str, Provider] = {}
    for entry in entries:
        name = str(entry.get("name", ""))
        try:
            provider = _provider(entry)
        except (ValueError, OSError) as error:
            raise ValueError(f"provider {name!r}: {error}") from error
        if provider.name in providers:
            raise ValueError(f"provider {name!r} is listed twice")
        providers[provider.name] = provider
    return providers


def _provider(entry: Mapping[str, Any]) -> Provider:
    for key, value in entry.items():
        _check_type(key, value)
    if not _NAME.fullmatch(entry.get("name", "")):
        raise ValueError("the name must be 1 to 32 lower-case letters, digits and hyphens")
    for key in ("issuer", "client_id"):
        if not entry.get(key):
            raise ValueError(f"{key} is missing")
    check_url(entry["issuer"])
    values = {key: value for key, value in entry.items() if not key.startswith("client_secret")}
    provider = Provider(**{"title": entry["name"], **values, "client_secret": _secret(entry)})
    if "openid" not in provider.scopes:
        raise ValueError("the scopes must include openid")
    if provider.creates_accounts and not provider.domain:
        raise ValueError("creates_accounts needs the domain of new users")
    return provider


def _check_type(key: str, value: Any) -> None:
    if key in _TEXTS:
        is_valid = isinstance(value, str)
    elif key in _LISTS:
        is_valid = isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
    elif key in _FLAGS:
        is_valid = isinstance(value, bool)
    else:
        known = sorted({*_TEXTS, *_LISTS, *_FLAGS})
        raise ValueError(f"unknown setting {key!r}; known: {', '.join(known)}")
    if not is_valid:
        kind = "a string" if key in _TEXTS else "a list of strings" if key in _LISTS else "a flag"
        raise ValueError(f"{key} must be {kind}")


def _secret(entry: Mapping[str, Any]) -> str:
    """Return the client secret; empty for a public client."""
    if path := entry.get("client_secret_file"):
        secret = Path(path).read_text().strip()
    elif variable := entry.get("client_secret_env"):
        secret = os.environ.get(variable, "").strip()
    else:
        return ""
    if not secret:
        raise ValueError("the client secret is empty")
    return secret


def check_url(url: str) -> None:
    """Raise ``ValueError`` unless ``url`` uses HTTPS, or HTTP with a loopback address."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return
    raise ValueError(f"{url!r} must begin with https://")


assert {*_TEXTS, *_LISTS, *_FLAGS} - {"client_secret_file", "client_secret_env"} == {
    one.name for one in fields(Provider)
} - {"client_secret"}
