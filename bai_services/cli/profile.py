"""Profile of the hub, from a file and from environment variables that override it."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bai_services.client import Keypair, Token
from bai_services.core.errors import InvalidRequest, NotSignedIn

SERVICE = "/services/bai"
# First path segment after the base URL in the URL of a page.
_PAGE_PATH = re.compile(r"/(?:hub|services|user)(?=/|$)")


@dataclass(frozen=True, slots=True)
class Profile:
    """Address of a hub and a credential for it; ``username`` is empty if unknown."""

    url: str
    credential: Token | Keypair
    username: str = ""

    @property
    def service_url(self) -> str:
        return self.url + SERVICE


def hub_url(text: str) -> str:
    """Return the base URL of the hub, without a trailing slash.

    ``text`` may also be the URL of a page of the Hub, of a service or of a session.

    Raises
    ------
    InvalidRequest
        If ``text`` is not an http or https URL, or contains a user name or password.
    """
    try:
        parts = urlsplit(text.strip())
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InvalidRequest(
            f"{text!r} is not a valid http or https URL; for example http://127.0.0.1:8000"
        )
    if parts.username or parts.password:
        raise InvalidRequest("the URL must not contain a user name or a password")
    base = _PAGE_PATH.split(parts.path.rstrip("/"), maxsplit=1)[0]
    return f"{parts.scheme}://{parts.netloc}{base}"


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the configuration folder of `bai`."""
    if own := environ.get("BAI_CONFIG_DIR"):
        return Path(own)
    base = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "bai"


def load(environ: Mapping[str, str] = os.environ) -> Profile:
    """Return the effective profile.

    ``BAI_URL``, ``BAI_TOKEN``, and ``BAI_ACCESS_KEY`` with ``BAI_SECRET_KEY`` override the
    file. The credential in the file is used only for the URL in the file.

    Raises
    ------
    NotSignedIn
        If the URL or a credential for it is missing.
    InvalidRequest
        If the file or an environment variable is invalid.
    """
    content = _read(folder(environ) / "config.json")
    url = hub_url(environ["BAI_URL"]) if environ.get("BAI_URL") else content.get("url")
    if not url:
        raise NotSignedIn("not signed in to any hub")
    if credential := _credential(environ, "BAI_TOKEN", "BAI_ACCESS_KEY", "BAI_SECRET_KEY"):
        return Profile(url, credential)
    credential = _credential(content, "token", "access_key", "secret_key")
    if credential is None or url != content.get("url"):
        raise NotSignedIn(f"not signed in to {url}", url=url)
    return Profile(url, credential, content.get("username", ""))


def load_saved(environ: Mapping[str, str] = os.environ) -> Profile | None:
    """Return the profile in the file, without overrides; None if it is missing or invalid."""
    try:
        content = _read(folder(environ) / "config.json")
        credential = _credential(content, "token", "access_key", "secret_key")
    except InvalidRequest:
        return None
    url = content.get("url")
    return Profile(url, credential, content.get("username", "")) if url and credential else None


def save(profile: Profile, environ: Mapping[str, str] = os.environ) -> Path:
    """Save the profile for later commands in a file of mode 0600; return its path.

    The file is replaced atomically, so that concurrent commands never read a partial file.
    """
    content = {"url": profile.url, "username": profile.username}
    if isinstance(profile.credential, Token):
        content["token"] = profile.credential.value
    else:
        content["access_key"] = profile.credential.access_key
        content["secret_key"] = profile.credential.secret_key
    target = folder(environ) / "config.json"
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp creates the file with mode 0600.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".config-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def delete_saved(environ: Mapping[str, str] = os.environ) -> bool:
    """Delete the saved profile; return whether there was one."""
    try:
        (folder(environ) / "config.json").unlink()
    except FileNotFoundError:
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict) or not all(isinstance(v, str) for v in content.values()):
        raise InvalidRequest(f"{path} is invalid; run bai logout, then bai login URL")
    return content


def _credential(
    values: Mapping[str, str], token: str, access_key: str, secret_key: str
) -> Token | Keypair | None:
    if values.get(token):
        return Token(values[token])
    access, secret = values.get(access_key), values.get(secret_key)
    if bool(access) != bool(secret):
        raise InvalidRequest(f"set both {access_key} and {secret_key}; only one of them is set")
    return Keypair(access, secret) if access and secret else None
