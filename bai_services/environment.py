"""Read the manager's settings from the environment (docs/admin-guide/settings.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from bai_services.branding import read_brand
from bai_services.core.accounts.one_time_codes import CodeRules
from bai_services.core.errors import InvalidRequest
from bai_services.core.operations.configuration import CHANGEABLE, ChangeableSetting, configured
from bai_services.core.resources import MEM, parse_amount
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.core.user_input import shown
from bai_services.home import Home
from bai_services.mail_settings import read_mail_server
from bai_services.manager.settings import Settings, StorageHostSettings
from bai_services.trusted_proxies import TrustedProxies

DEFAULT_HOME = ".bai"
DEFAULT_IMAGE = "bai-session:latest"
_HOST_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Return the manager's settings; secrets without a configured file are stored in ``BAI_HOME``.

    Raises
    ------
    SystemExit
        If a variable is invalid, or a secret file cannot be read or is empty; the message names the
        variable.
    """
    home = Home(Path(environ.get("BAI_HOME") or DEFAULT_HOME))
    sqlite = f"sqlite+aiosqlite:///{home.path / 'bai.sqlite'}"
    proxies = environ.get("BAI_TRUSTED_PROXIES", "")
    scopes = environ.get("JUPYTERHUB_OAUTH_ACCESS_SCOPES", "")
    optional: dict[str, object] = {}
    if proxies:
        optional["trusted_proxies"] = _trusted_proxies(proxies)
    for setting in CHANGEABLE:
        if text := environ.get(setting.variable):
            optional[setting.field] = _parsed(setting, text)
    if text := environ.get("BAI_ONE_TIME_CODES"):
        optional["one_time_codes"] = _code_rules(text)
    if storage_hosts := environ.get("BAI_STORAGE_HOSTS"):
        optional["storage_hosts"] = _storage_hosts(storage_hosts)
    optional["brand"] = read_brand(environ)
    optional["mail"] = read_mail_server(environ)
    optional["callback_targets"] = _targets(environ, "BAI_CALLBACK_HOSTS", "BAI_CALLBACK_NETWORKS")
    optional["import_reach"] = _targets(environ, "BAI_IMPORT_HOSTS", "BAI_IMPORT_NETWORKS")
    optional["registry_reach"] = _targets(environ, "BAI_REGISTRY_HOSTS", "BAI_REGISTRY_NETWORKS")
    optional["model_hub_token"] = _optional_secret(environ, "BAI_MODEL_HUB_TOKEN_FILE")
    if text := environ.get("BAI_MODEL_HUB_URL"):
        optional["model_hub_url"] = _base_url("BAI_MODEL_HUB_URL", text)
    if text := environ.get("BAI_IMPORT_MAX_BYTES"):
        optional["import_max_bytes"] = _size("BAI_IMPORT_MAX_BYTES", text)
    optional["commit_registry"] = environ.get("BAI_COMMIT_REGISTRY", "")
    if text := environ.get("BAI_COMMIT_MAX_BYTES"):
        optional["commit_max_bytes"] = _size("BAI_COMMIT_MAX_BYTES", text)
    optional["public_origin"] = _public_origin(environ)
    optional["gateway_domain"] = environ.get("BAI_GATEWAY_DOMAIN", "").strip(".").lower()
    optional["swarm_host"] = _docker_url(environ, "BAI_SWARM_HOST")
    optional["provisioning_command"] = _command(environ, "BAI_PROVISIONING_COMMAND")
    optional["prometheus_url"] = _prometheus_url(environ)
    if scopes:
        optional["hub_access_scopes"] = _scopes("JUPYTERHUB_OAUTH_ACCESS_SCOPES", scopes)
    database_url = environ.get("BAI_DATABASE_URL") or sqlite
    if database_url == sqlite:
        home.database("bai.sqlite")
    return Settings(
        home=home.path,
        database_url=database_url,
        storage_root=Path(environ.get("BAI_STORAGE_ROOT") or home.path / "vfolders").absolute(),
        hub_token=_secret(environ, "BAI_HUB_TOKEN_FILE", home, "hub-token"),
        agent_token=_secret(environ, "BAI_AGENT_TOKEN_FILE", home, "agent-token"),
        gateway_token=_secret(environ, "BAI_GATEWAY_TOKEN_FILE", home, "gateway-token"),
        metrics_token=_secret(environ, "BAI_METRICS_TOKEN_FILE", home, "metrics-token"),
        key=_secret(environ, "BAI_KEY_FILE", home, "key").encode(),
        hub_api_url=environ.get("JUPYTERHUB_API_URL", ""),
        hub_api_token=environ.get("JUPYTERHUB_API_TOKEN", ""),
        base_url=(environ.get("JUPYTERHUB_SERVICE_PREFIX") or "/services/bai").rstrip("/"),
        hub_base_url=environ.get("JUPYTERHUB_BASE_URL") or "/",
        configured=configured(environ),
        **optional,  # type: ignore[arg-type]  # each value has the type of its field
    )


def _parsed(setting: ChangeableSetting, text: str) -> int | bool:
    try:
        return setting.parse(text)
    except InvalidRequest as error:
        raise SystemExit(error.message) from None


def _code_rules(text: str) -> CodeRules:
    try:
        return CodeRules.parse(text)
    except ValueError as error:
        raise SystemExit(
            f"BAI_ONE_TIME_CODES: {error}; for example BAI_ONE_TIME_CODES=optional,staff=required"
        ) from None


def _scopes(variable: str, text: str) -> frozenset[str]:
    try:
        scopes = json.loads(text)
    except ValueError:
        scopes = None
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise SystemExit(f"{variable} must be a JSON list of scopes, not {text!r}")
    return frozenset(scopes)


def _command(environ: Mapping[str, str], variable: str) -> str:
    path = environ.get(variable, "")
    if path and not Path(path).is_absolute():
        raise ValueError(f"{variable} must be the absolute path of a program, not {path!r}")
    return path


def _public_origin(environ: Mapping[str, str]) -> str:
    """Return scheme and host of the installation, "" if they are unknown.

    JupyterHub passes its ``public_url`` to services in ``JUPYTERHUB_PUBLIC_HUB_URL``.
    """
    text = environ.get("BAI_PUBLIC_URL") or environ.get("JUPYTERHUB_PUBLIC_HUB_URL") or ""
    if not text:
        return ""
    parts = urlsplit(_base_url("BAI_PUBLIC_URL", text))
    return f"{parts.scheme}://{parts.netloc}"


def _base_url(variable: str, text: str) -> str:
    if not _is_http_url(text) or "@" in urlsplit(text).netloc:
        raise SystemExit(
            f"{variable} must be a URL such as https://hub.example.org/, not {shown(text)!r}"
        )
    return text


def _prometheus_url(environ: Mapping[str, str]) -> str:
    text = environ.get("BAI_PROMETHEUS_URL", "").strip()
    if text and not (_is_http_url(text) and urlsplit(text).query == ""):
        raise SystemExit("BAI_PROMETHEUS_URL must be a URL such as http://prometheus.example:9090")
    return text


def _docker_url(environ: Mapping[str, str], variable: str) -> str:
    text = environ.get(variable, "").strip()
    if text and not text.startswith(("unix:///", "ssh://", "tcp://")):
        raise SystemExit(
            f"{variable} must be the URL of a Docker engine such as unix:///var/run/docker.sock, "
            f"not {shown(text)!r}"
        )
    return text


def _is_http_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _size(variable: str, text: str) -> int:
    try:
        return parse_amount(MEM, text)
    except InvalidRequest:
        raise SystemExit(f"{variable} must be a size such as 500g, not {shown(text)!r}") from None


def _optional_secret(environ: Mapping[str, str], variable: str) -> str:
    """Return the text of a file, "" if the variable is not set."""
    name = environ.get(variable)
    if not name:
        return ""
    try:
        text = Path(name).read_text().strip()
    except OSError as error:
        raise SystemExit(f"{variable}: {name} cannot be read: {error.strerror}") from None
    if not text.isascii() or not text.isprintable() or " " in text:
        raise SystemExit(f"{variable}: {name} does not contain a token")
    return text


def _targets(environ: Mapping[str, str], hosts: str, networks: str) -> AllowedTargets:
    try:
        return AllowedTargets.parse(environ.get(hosts, ""), environ.get(networks, ""))
    except ValueError as error:
        raise SystemExit(
            f"{hosts}, {networks}: {error}; for example {hosts}=*.example.org "
            f"{networks}=10.1.0.0/16"
        ) from None


def _trusted_proxies(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        TrustedProxies.parse(parts)
    except ValueError as error:
        raise SystemExit(
            f"BAI_TRUSTED_PROXIES: {error}; list networks and addresses, separated by commas; "
            "'own' stands for this machine's addresses; for example "
            "BAI_TRUSTED_PROXIES=own,10.1.2.3"
        ) from None
    return parts


def _storage_hosts(text: str) -> tuple[StorageHostSettings, ...]:
    """Return the storage hosts in a comma-separated list of ``NAME=BACKEND:/PATH``.

    The first host is the default.
    """
    hosts = []
    for part in text.split(","):
        name, _, location = part.strip().partition("=")
        backend, _, path = location.partition(":")
        if not _HOST_NAME.fullmatch(name) or not backend or not path.startswith("/"):
            raise SystemExit(
                f"BAI_STORAGE_HOSTS: {part.strip()!r} is not NAME=BACKEND:/PATH; "
                "for example local=local:/srv/folders,fast=btrfs:/mnt/fast"
            )
        hosts.append(StorageHostSettings(name, backend, Path(path)))
    names = [host.name for host in hosts]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise SystemExit(f"BAI_STORAGE_HOSTS: duplicate host name {duplicates[0]!r}")
    return tuple(hosts)


def _secret(environ: Mapping[str, str], variable: str, home: Home, name: str) -> str:
    configured = environ.get(variable)
    path = Path(configured or home.secret(name))
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise SystemExit(f"{variable}: {path} cannot be read: {error.strerror}") from None
    if not text:
        remedy = "" if configured else "; delete it and a new secret is generated"
        raise SystemExit(f"{variable}: {path} is empty{remedy}")
    return text
