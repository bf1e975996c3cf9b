"""Settings of an installation: the file ``bai-hub.toml``, which `bai-hub init` writes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from ..errors import InvalidRequest
from ..ip_addresses import parse_address
from ..user_input import shown

FILE_NAME = "bai-hub.toml"
MAX_FILE_BYTES = 256 * 1024
MAX_STORAGE_HOSTS = 100
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,190}")
_VARIABLE = re.compile(r"(BAI|OTEL)_[A-Z0-9_]{1,60}|DOCKER_[A-Z_]{1,60}|SSL_CERT_(FILE|DIR)")
# These variables come from other settings of the file.
COMPUTED_VARIABLES = frozenset(
    {"BAI_HOME", "BAI_PORT", "BAI_ENGINE", "BAI_DATABASE_URL", "BAI_STORAGE_HOSTS", "BAI_CONFIG"}
)


# Parameters of the URL of a database that contain a password.
_PASSWORDS = frozenset({"password", "sslpassword"})

_E = TypeVar("_E", bound=StrEnum)


class Tls(StrEnum):
    """The program that terminates TLS; caddy and traefik get certificates by ACME.

    ``external``: another reverse proxy, which the administrator operates.
    """

    CERTIFICATE = "certificate"
    CADDY = "caddy"
    TRAEFIK = "traefik"
    EXTERNAL = "external"


class EngineKind(StrEnum):
    DOCKER = "docker"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class StorageHost:
    name: str
    backend: str
    path: str


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the components behind the public port; only this machine connects to them."""

    proxy: int = 8000
    proxy_api: int = 8001
    hub: int = 8081
    manager: int = 8091
    gateway: int = 8092


@dataclass(frozen=True, slots=True)
class Installation:
    """Settings of an installation. Paths are absolute."""

    host: str  # name under which users open the hub
    state: str  # databases, secrets, homes of sessions
    bind: str = ""  # address on which the proxy listens; empty: every address of this machine
    # Address at which sessions and agents of other machines reach the Hub and the manager. Empty:
    # the address of Docker's bridge, so sessions run only on this machine.
    internal: str = ""
    # Address of a load balancer in front of several managers. Empty: there is one manager, at
    # ``internal``.
    managers: str = ""
    port: int = 443  # public port
    tls: Tls = Tls.CERTIFICATE
    certificate: str = ""
    certificate_key: str = ""
    acme_email: str = ""
    # Contains no password (see ``database_password_file``). Empty: SQLite in ``state``.
    database: str = ""
    hub_database: str = ""
    database_password_file: str = ""
    engine: EngineKind = EngineKind.DOCKER
    image: str = "bai-session:latest"
    storage: tuple[StorageHost, ...] = ()
    service_user: str = "bai-hub"
    hub_config: str = ""  # further configuration of JupyterHub
    ports: Ports = Ports()
    # Further variables of the Hub, the manager, the agent and the gateway.
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def public_url(self) -> str:
        """Return the URL under which users open the hub."""
        return f"https://{self.host}{'' if self.port == 443 else f':{self.port}'}/"

    @property
    def proxy_port(self) -> int:
        """Return the port on which configurable-http-proxy listens."""
        return self.port if self.tls is Tls.CERTIFICATE else self.ports.proxy

    @property
    def proxy_bind(self) -> str:
        """Return the address on which configurable-http-proxy listens, "" for every address."""
        if self.tls in (Tls.CERTIFICATE, Tls.EXTERNAL):
            return self.bind
        return "127.0.0.1"

    @property
    def uses_sqlite(self) -> bool:
        return not self.database

    def hub_database_url(self) -> str:
        """Return the URL of JupyterHub's database on PostgreSQL, "" for SQLite.

        By default, it is on the same server as the manager's database and has the suffix
        ``_jupyterhub``.
        """
        if self.uses_sqlite or self.hub_database:
            return self.hub_database
        url, question, query = self.database.partition("?")
        return f"{url}_jupyterhub{question}{query}"

    def storage_hosts(self) -> tuple[StorageHost, ...]:
        """Return the storage hosts, at least one."""
        return self.storage or (StorageHost("local", "local", f"{self.state}/vfolders"),)


def parse(text: str) -> Installation:
    """Parse the text of ``bai-hub.toml``.

    Raises
    ------
    InvalidRequest
        If the text is not TOML, or a setting is unknown or invalid; ``field`` names the setting.
    """
    if len(text) > MAX_FILE_BYTES:
        raise InvalidRequest(f"{FILE_NAME} has more than {MAX_FILE_BYTES} characters", field="")
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{FILE_NAME} is not valid TOML: {error}", field="") from None
    return _Reader(content).installation()


class _Reader:
    """Reads the settings of a file. Settings that are not read are reported as unknown."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._sections = {
            name: self._section(name, value) if name != "storage" else value
            for name, value in content.items()
        }
        self._storage = self._sections.pop("storage", [])

    @staticmethod
    def _section(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _invalid(name, "must be a table, for example [address]")
        return dict(value)

    def installation(self) -> Installation:
        installation = Installation(
            host=self._text("address", "host", ""),
            bind=self._text("address", "bind", ""),
            internal=self._text("address", "internal", ""),
            managers=self._text("address", "managers", ""),
            port=self._port("address", "port", 443),
            tls=self._choice("tls", "mode", Tls, Tls.CERTIFICATE),
            certificate=self._path("tls", "certificate"),
            certificate_key=self._path("tls", "key"),
            acme_email=self._text("tls", "email", ""),
            database=self._text("database", "url", ""),
            hub_database=self._text("database", "hub_url", ""),
            database_password_file=self._path("database", "password_file"),
            engine=self._choice("engine", "name", EngineKind, EngineKind.DOCKER),
            image=self._text("engine", "image", "bai-session:latest"),
            storage=self._storage_hosts(),
            service_user=self._text("service", "user", "bai-hub"),
            state=self._path("service", "state"),
            hub_config=self._path("service", "hub_config"),
            ports=self._ports(),
            environment=self._environment(),
        )
        for section, values in self._sections.items():
            if values:
                raise _invalid(f"{section}.{next(iter(values))}", "is not a setting")
        check(installation)
        return installation

    def _take(self, section: str, name: str, default: Any) -> Any:
        return self._sections.get(section, {}).pop(name, default)

    def _text(self, section: str, name: str, default: str) -> str:
        value = self._take(section, name, default)
        if not isinstance(value, str) or not value.isprintable() or len(value) > 4096:
            raise _invalid(f"{section}.{name}", "must be a string of printable characters")
        return value

    def _path(self, section: str, name: str) -> str:
        text = self._text(section, name, "")
        return _checked_path(f"{section}.{name}", text) if text else ""

    def _port(self, section: str, name: str, default: int) -> int:
        value = self._take(section, name, default)
        if type(value) is not int or not 0 < value < 65536:
            raise _invalid(f"{section}.{name}", "must be a port from 1 to 65535")
        return int(value)

    def _choice(self, section: str, name: str, kind: type[_E], default: _E) -> _E:
        text = self._text(section, name, default)
        try:
            return kind(text)
        except ValueError:
            choices = ", ".join(kind)
            raise _invalid(
                f"{section}.{name}", f"must be one of {choices}, not {shown(text)!r}"
            ) from None

    def _ports(self) -> Ports:
        defaults = Ports()
        return Ports(
            **{name: self._port("ports", name, getattr(defaults, name)) for name in _PORT_NAMES}
        )

    def _storage_hosts(self) -> tuple[StorageHost, ...]:
        if not isinstance(self._storage, list) or len(self._storage) > MAX_STORAGE_HOSTS:
            raise _invalid("storage", "must be tables [[storage]] with name, backend and path")
        hosts = []
        for value in self._storage:
            if not isinstance(value, dict) or not set(value) <= {"name", "backend", "path"}:
                raise _invalid("storage", "must have name, backend and path, nothing else")
            hosts.append(
                storage_host(value.get("name"), value.get("backend", "local"), value.get("path"))
            )
        return tuple(hosts)

    def _environment(self) -> dict[str, str]:
        values = self._sections.pop("environment", {})
        for name, value in values.items():
            if not isinstance(value, str) or not value.isprintable():
                raise _invalid(f"environment.{shown(name)}", "must be a string")
        return dict(values)


_PORT_NAMES = tuple(Ports.__dataclass_fields__)


def storage_host(name: Any, backend: Any, path: Any) -> StorageHost:
    """Return a storage host.

    Raises
    ------
    InvalidRequest
        If a value is invalid.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _invalid("storage.name", "must be a name such as local: a-z, 0-9, - and _")
    if not isinstance(backend, str) or not _NAME.fullmatch(backend):
        raise _invalid("storage.backend", "must be a backend such as local or btrfs")
    if not isinstance(path, str) or "," in path:
        raise _invalid("storage.path", "must be an absolute path without commas")
    return StorageHost(name, backend, _checked_path("storage.path", path))


def check(installation: Installation) -> None:
    """Raise ``InvalidRequest`` if settings are invalid or contradict each other."""
    if not _HOST.fullmatch(installation.host):
        raise _invalid("address.host", "must be the name of the hub, such as hub.example.org")
    internal = parse_address(installation.internal)
    if installation.internal and (
        internal is None or internal.version != 4 or internal.is_unspecified
    ):
        raise _invalid("address.internal", "must be an IPv4 address of this machine")
    if installation.managers:
        _check_managers(installation)
    if not installation.state:
        raise _invalid("service.state", "must be the folder of the installation's state")
    if not _USER.fullmatch(installation.service_user):
        raise _invalid("service.user", "must be the name of a user of this machine")
    _check_tls(installation)
    _check_database(installation)
    names = [host.name for host in installation.storage]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise _invalid("storage.name", f"must be unique; {duplicates[0]} occurs twice")
    if not installation.image or any(c.isspace() for c in installation.image):
        raise _invalid("engine.image", "must be the name of an image")
    ports = [getattr(installation.ports, name) for name in _PORT_NAMES]
    if len({installation.port, *ports}) != len(ports) + 1:
        raise _invalid("ports", "must differ from each other and from address.port")
    for name in installation.environment:
        if not _VARIABLE.fullmatch(name):
            raise _invalid(
                f"environment.{shown(name)}", "must be a variable BAI_…, DOCKER_… or OTEL_…"
            )
        if name in COMPUTED_VARIABLES:
            raise _invalid(f"environment.{name}", "is computed from the other settings")


def _check_managers(installation: Installation) -> None:
    address = parse_address(installation.managers)
    if address is None or address.version != 4 or address.is_unspecified:
        raise _invalid("address.managers", "must be the IPv4 address of a load balancer")
    if not installation.internal or installation.managers == installation.internal:
        raise _invalid(
            "address.managers", "requires address.internal, which must be another address"
        )
    if installation.uses_sqlite:
        raise _invalid("address.managers", "requires PostgreSQL, which all managers can reach")


def _check_tls(installation: Installation) -> None:
    if installation.tls is Tls.CERTIFICATE:
        if not installation.certificate or not installation.certificate_key:
            raise _invalid(
                "tls.certificate",
                "and tls.key (--certificate, --certificate-key) must name the files of the "
                "certificate and its key",
            )
    elif installation.certificate or installation.certificate_key:
        raise _invalid("tls.certificate", 'has an effect only with tls.mode = "certificate"')
    is_acme = installation.tls in (Tls.CADDY, Tls.TRAEFIK)
    if is_acme and not _EMAIL.fullmatch(installation.acme_email):
        raise _invalid("tls.email", "must be the e-mail address for the ACME account")
    if installation.acme_email and not is_acme:
        raise _invalid("tls.email", 'has an effect only with tls.mode = "caddy" or "traefik"')


def _check_database(installation: Installation) -> None:
    for name, text in (("url", installation.database), ("hub_url", installation.hub_database)):
        if not text:
            continue
        try:
            parts = urlsplit(text)
            names = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
            has_password = parts.password is not None or not names.isdisjoint(_PASSWORDS)
            is_valid = parts.scheme == "postgresql" and len(parts.path) > 1 and parts.port != 0
        except ValueError:
            is_valid = has_password = False
        if not is_valid:
            raise _invalid(
                f"database.{name}", "must be a URL such as postgresql://bai@db.example.org/bai"
            )
        if has_password:
            raise _invalid(
                f"database.{name}", "must not contain the password; use database.password_file"
            )
    if installation.uses_sqlite and (
        installation.hub_database or installation.database_password_file
    ):
        raise _invalid("database.url", "is missing, but other settings of PostgreSQL are set")
    if installation.database and installation.database == installation.hub_database_url():
        raise _invalid("database.hub_url", "must differ from database.url")


def _checked_path(name: str, text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or not text.isprintable():
        raise _invalid(name, "must be an absolute path without ..")
    if any(c in text for c in ":%$\"'\\") or any(c.isspace() for c in text):
        # These characters are special in systemd units, Compose files or lists of hosts.
        raise _invalid(name, "must not contain spaces, quotes or any of : % $ \\")
    return str(path)


def _invalid(name: str, rule: str) -> InvalidRequest:
    return InvalidRequest(f"{name} {rule}", field=name)


def moved(
    installation: Installation,
    *,
    state: str | None = None,
    storage: Mapping[str, str] | None = None,
    **values: Any,
) -> Installation:
    """Return the settings for another machine, with another state folder and, by name, other paths
    of storage hosts; ``values`` are further fields.

    Raises
    ------
    InvalidRequest
        If a storage host does not exist, or a setting is invalid.
    """
    hosts = {host.name: host for host in installation.storage_hosts()}
    for name, path in (storage or {}).items():
        if name not in hosts:
            raise _invalid("storage.name", f"has no host {shown(name)!r}")
        hosts[name] = storage_host(name, hosts[name].backend, path)
    changed: dict[str, Any] = dict(values)
    if state is not None:
        changed["state"] = _checked_path("service.state", state)
    # The path of the default host is inside the state folder, so it changes with that folder.
    if installation.storage or storage:
        changed["storage"] = tuple(hosts.values())
    result = replace(installation, **changed)
    check(result)
    return result


def render(installation: Installation) -> str:
    """Return the text of ``bai-hub.toml``; ``parse`` is the inverse."""
    address = {
        "host": installation.host,
        "bind": installation.bind,
        "port": installation.port,
        "internal": installation.internal,
        "managers": installation.managers,
    }
    tls = {
        "mode": installation.tls.value,
        "certificate": installation.certificate,
        "key": installation.certificate_key,
        "email": installation.acme_email,
    }
    database = {
        "url": installation.database,
        "hub_url": installation.hub_database,
        "password_file": installation.database_password_file,
    }
    engine = {"name": installation.engine.value, "image": installation.image}
    service = {
        "user": installation.service_user,
        "state": installation.state,
        "hub_config": installation.hub_config,
    }
    ports = {name: getattr(installation.ports, name) for name in _PORT_NAMES}
    lines = ["# Settings of this bai-hub installation; see the chapter Installation of the manual."]
    lines.append("# After a change: bai-hub init on this folder again, then bai-hub check.")
    sections: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("address", address),
        ("tls", tls),
        ("database", database),
        ("engine", engine),
        ("service", service),
        ("ports", ports),
    )
    for name, values in sections:
        entries = [f"{key} = {_toml(value)}" for key, value in values.items() if value != ""]
        lines += ["", f"[{name}]", *(entries or ["# SQLite in the state folder"])]
    for host in installation.storage:
        lines += ["", "[[storage]]", f"name = {_toml(host.name)}"]
        lines += [f"backend = {_toml(host.backend)}", f"path = {_toml(host.path)}"]
    if installation.environment:
        lines += ["", "[environment]"]
        lines += [f"{key} = {_toml(value)}" for key, value in installation.environment.items()]
    return "\n".join([*lines, ""])


def _toml(value: object) -> str:
    # Texts contain only printable characters, so a JSON string is a valid TOML string.
    return json.dumps(value, ensure_ascii=False)
