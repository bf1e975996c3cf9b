"""`bai-hub check`: find errors in the configuration of an installation, and name remedies."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa
from cryptography import x509

from bai_services.core.errors import BaiError
from bai_services.core.installation.settings import (
    EngineKind,
    Installation,
    StorageHost,
    Tls,
)
from bai_services.db import schema
from bai_services.system.ports import is_free

from .components import internal_address, node_program, proxy_program
from .folder import changed_files, database_url, hub_database_url, read_settings_file
from .setup import generated_files, outdated_files

OLDEST_POSTGRES = 13
MIN_FREE_BYTES = 2**30
WARN_DAYS = 21
# A clock before this date is wrong: this version did not exist then.
EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
TIMEOUT_SECONDS = 10


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; ``remedy`` is empty if the level is ``ok``."""

    check: str
    level: Level
    message: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def _ok(check: str, message: str) -> Finding:
    return Finding(check, Level.OK, message)


def _warning(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Level.WARNING, message, remedy)


def _error(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Level.ERROR, message, remedy)


def run_checks(folder: Path) -> list[Finding]:
    """Return the results of all checks; only the first one if the settings are invalid."""
    try:
        installation = read_settings_file(folder)
    except BaiError as error:
        return [_error("settings", error.message, "correct the file, then check again")]
    findings = [_ok("settings", f"{folder}/bai-hub.toml is valid")]
    for check in (
        _generated(installation, folder),
        _programs(),
        _certificate(installation),
        _ports(installation),
        _secrets(installation),
        _databases(installation),
        _storage(installation),
        _engine(installation),
        _clock(),
    ):
        findings += check
    return findings


def _generated(installation: Installation, folder: Path) -> Iterator[Finding]:
    files = generated_files(installation, folder)
    if changed := changed_files(folder, files):
        yield _warning(
            "files",
            f"changed by hand: {', '.join(changed)}",
            "move your changes to a drop-in (systemctl edit) or to another file",
        )
        return
    old = outdated_files(files, folder)
    if old:
        yield _warning(
            "files",
            f"out of date: {', '.join(old)}",
            f"run bai-hub init {folder}, and install the units again",
        )
    else:
        yield _ok("files", "the generated files match the settings")


def _programs() -> Iterator[Finding]:
    try:
        node_program()
        yield _ok("proxy", f"configurable-http-proxy is at {proxy_program()}")
    except BaiError as error:
        yield _error("proxy", error.message, "install the wheel with the extra node")


def _certificate(installation: Installation) -> Iterator[Finding]:
    if installation.tls is not Tls.CERTIFICATE:
        yield _ok("certificate", f"TLS is terminated by: {installation.tls}")
        return
    try:
        content = Path(installation.certificate).read_bytes()
        certificate = x509.load_pem_x509_certificate(content)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            installation.certificate, installation.certificate_key, password=_no_password
        )
    except (OSError, ValueError) as error:
        yield _error(
            "certificate",
            f"certificate and key cannot be used: {error}",
            "tls.certificate and tls.key must be PEM files that belong together, without password",
        )
        return
    yield from _validity(certificate)
    yield from _names(certificate, installation.host)
    mode = Path(installation.certificate_key).stat().st_mode & 0o777
    if mode & 0o007:
        yield _error(
            "certificate-key",
            f"every user of this machine can read the key (mode {mode:04o})",
            f"chmod o= {installation.certificate_key}",
        )


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _validity(certificate: x509.Certificate) -> Iterator[Finding]:
    now = datetime.now(UTC)
    end = certificate.not_valid_after_utc
    if now < certificate.not_valid_before_utc:
        yield _error(
            "certificate",
            f"it is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on",
            "check the clock, or use another certificate",
        )
    elif end <= now:
        yield _error("certificate", f"it expired on {end:%Y-%m-%d}", "renew the certificate")
    elif end - now < timedelta(days=WARN_DAYS):
        yield _warning("certificate", f"it expires on {end:%Y-%m-%d}", "renew the certificate")
    else:
        yield _ok("certificate", f"it is valid until {end:%Y-%m-%d}")


def _names(certificate: x509.Certificate, host: str) -> Iterator[Finding]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        names: list[str] = []
    else:
        names = [name.lower() for name in extension.value.get_values_for_type(x509.DNSName)]
        names += map(str, extension.value.get_values_for_type(x509.IPAddress))
    wildcard = f"*.{host.lower().partition('.')[2]}"
    if host.lower() in names or wildcard in names:
        yield _ok("certificate-name", f"it is for {host}")
    else:
        yield _error(
            "certificate-name",
            f"it is for {', '.join(names) or 'no host name'}, not for {host}",
            "use a certificate for address.host",
        )


def _ports(installation: Installation) -> Iterator[Finding]:
    """Check that each port is free, or that something listens on all of them: the hub runs."""
    ports = {
        "public port": installation.proxy_port,
        "hub": installation.ports.hub,
        "manager": installation.ports.manager,
        "gateway": installation.ports.gateway,
        "proxy_api": installation.ports.proxy_api,
    }
    used = {name: port for name, port in ports.items() if not is_free(port)}
    if not used:
        yield _ok("ports", "all ports are free")
    elif len(used) == len(ports):
        yield _ok("ports", "all ports are in use, so the installation seems to run")
    else:
        text = ", ".join(f"{port} ({name})" for name, port in used.items())
        yield _error(
            "ports",
            f"in use: {text}; the other ports are free",
            "stop the program that listens there, choose others in [ports], or start the "
            "components that do not run",
        )


def _secrets(installation: Installation) -> Iterator[Finding]:
    folder = Path(installation.state) / "secrets"
    if not folder.is_dir():
        yield _error("secrets", f"{folder} is missing", "run bai-hub init")
        return
    files = [folder, *folder.iterdir()]
    if installation.database_password_file:
        files.append(Path(installation.database_password_file))
    for path in files:
        try:
            mode = path.stat().st_mode & 0o777
        except OSError as error:
            yield _error("secrets", f"{path}: {error.strerror}", "create the file with mode 0600")
            return
        if mode & 0o077:
            yield _error(
                "secrets",
                f"other users can access {path} (mode {mode:04o})",
                f"chmod go= {path}, and replace the secret if others may have read it",
            )
            return
    yield _ok("secrets", "only their owner can read the files")


def _databases(installation: Installation) -> Iterator[Finding]:
    for name, url in (
        ("database", database_url),
        ("hub-database", hub_database_url),
    ):
        try:
            yield from _database(name, url(installation))
        except BaiError as error:
            yield _error(name, error.message, "correct the section [database]")
        except (sa.exc.SQLAlchemyError, OSError) as error:
            reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
            yield _error(
                name,
                f"it cannot be reached: {reason}",
                "check URL, password, and that the server runs and accepts this machine",
            )


def _database(name: str, url: str) -> Iterator[Finding]:
    if url.startswith("sqlite"):
        yield _ok(name, "SQLite")
    else:
        engine = sa.create_engine(
            url, poolclass=sa.NullPool, connect_args={"connect_timeout": TIMEOUT_SECONDS}
        )
        with engine.connect() as connection:
            version = int(connection.scalar(sa.text("SHOW server_version_num")) or 0) // 10000
        if version < OLDEST_POSTGRES:
            yield _error(
                name,
                f"PostgreSQL {version} is too old",
                f"upgrade the server to PostgreSQL {OLDEST_POSTGRES} or later",
            )
            return
        yield _ok(name, f"PostgreSQL {version} responds")
    if name == "database":
        yield from _revision(url)


def _revision(url: str) -> Iterator[Finding]:
    current, known = schema.current(url), schema.revisions()
    if current is not None and current not in known:
        yield _error(
            "schema",
            f"the database has revision {current}, which this version does not know",
            "install the later version again, or restore a backup",
        )
    elif current != known[-1]:
        yield _warning(
            "schema",
            f"the database has revision {current or 'none'}, this version has {known[-1]}",
            "make a backup; the manager migrates the database when it starts",
        )
    else:
        yield _ok("schema", f"the database has the newest revision, {current}")


def _storage(installation: Installation) -> Iterator[Finding]:
    for host in installation.storage_hosts():
        yield _storage_host(host)


def _storage_host(host: StorageHost) -> Finding:
    name, path = f"storage {host.name}", Path(host.path)
    if not path.is_dir():
        return _error(name, f"{path} does not exist", "mount the file system, or create the folder")
    if not os.access(path, os.W_OK):
        return _error(name, f"{path} is not writable", "check the mount options and the owner")
    free = shutil.disk_usage(path).free
    if free < MIN_FREE_BYTES:
        return _warning(name, f"{path} has {free // 2**20} MiB free", "free space")
    return _ok(name, f"{path} is writable, with {free // 2**30} GiB free")


def _engine(installation: Installation) -> Iterator[Finding]:
    if installation.engine is EngineKind.PROCESS:
        yield _warning(
            "engine",
            f"sessions run as the user {installation.service_user}, without containers",
            "use the engine docker if the hub has more than one user",
        )
        return
    try:
        address = internal_address(installation)
    except BaiError as error:
        yield _error("engine", error.message, "start Docker, and check DOCKER_HOST")
        return
    yield _ok("engine", f"Docker responds; sessions reach the Hub at {address}")
    words = ["docker", "image", "inspect", "--format", "{{.Id}}", installation.image]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **installation.environment},
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode:
        yield _warning(
            "image",
            f"Docker has no image {installation.image}",
            "build it with images/session/build, or pull it",
        )
    else:
        yield _ok("image", f"Docker has the image {installation.image}")


def _clock() -> Iterator[Finding]:
    now = datetime.fromtimestamp(time.time(), UTC)
    if now < EARLIEST:
        yield _error("clock", f"it is {now:%Y-%m-%d} here", "set the clock; use NTP")
        return
    try:
        words = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == 0 and done.stdout.strip() == "no":
        yield _warning("clock", "it is not synchronized", "enable NTP: timedatectl set-ntp true")
    else:
        yield _ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC on {socket.gethostname()}")


def worst(findings: list[Finding]) -> Level:
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.ERROR, Level.WARNING) if level in levels), Level.OK)
