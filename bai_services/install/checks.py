"""`bai-hub check`: find errors in the configuration of an installation, and name remedies."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
from cryptography import x509

from bai_services.core.errors import BaiError, NotFound
from bai_services.core.installation.findings import Finding, error, ok, validity, warning
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
# If the date is before this, the clock is wrong, because this version did not exist then.
EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
TIMEOUT_SECONDS = 10


def run_checks(folder: Path) -> list[Finding]:
    """Return the results of all checks; only the first one if the settings are invalid."""
    try:
        installation = read_settings_file(folder)
    except NotFound as problem:
        return [
            error("settings", problem.message, "name the folder that `bai-hub init` has written")
        ]
    except BaiError as problem:
        return [error("settings", problem.message, "correct the file, then check again")]
    findings = [ok("settings", f"{folder}/bai-hub.toml is valid")]
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
        yield warning(
            "files",
            f"changed by hand: {', '.join(changed)}",
            "move your changes to a drop-in (systemctl edit) or to another file",
        )
        return
    old = outdated_files(files, folder)
    if old:
        yield warning(
            "files",
            f"out of date: {', '.join(old)}",
            f"run bai-hub init {folder}, and install the units again",
        )
    else:
        yield ok("files", "the generated files match the settings")


def _programs() -> Iterator[Finding]:
    try:
        node_program()
        yield ok("proxy", f"configurable-http-proxy is at {proxy_program()}")
    except BaiError as problem:
        yield error("proxy", problem.message, "install the wheel with the extra node")


def _certificate(installation: Installation) -> Iterator[Finding]:
    if installation.tls is not Tls.CERTIFICATE:
        yield ok("certificate", f"TLS is terminated by: {installation.tls}")
        return
    try:
        content = Path(installation.certificate).read_bytes()
        certificate = x509.load_pem_x509_certificate(content)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            installation.certificate, installation.certificate_key, password=_no_password
        )
    except (OSError, ValueError) as problem:
        yield error(
            "certificate",
            f"certificate and key cannot be used: {problem}",
            "tls.certificate and tls.key must be PEM files that belong together, without password",
        )
        return
    yield validity(
        "certificate",
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        datetime.now(UTC),
    )
    yield from _names(certificate, installation.host)
    mode = Path(installation.certificate_key).stat().st_mode & 0o777
    if mode & 0o007:
        yield error(
            "certificate-key",
            f"every user of this machine can read the key (mode {mode:04o})",
            f"chmod o= {installation.certificate_key}",
        )


def _no_password() -> str:
    raise ValueError("the key is encrypted")


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
        yield ok("certificate-name", f"it is for {host}")
    else:
        yield error(
            "certificate-name",
            f"it is for {', '.join(names) or 'no host name'}, not for {host}",
            "use a certificate for address.host",
        )


def _ports(installation: Installation) -> Iterator[Finding]:
    """Check that all ports are free, or that all are in use by the running hub."""
    ports = {
        "public port": installation.proxy_port,
        "hub": installation.ports.hub,
        "manager": installation.ports.manager,
        "gateway": installation.ports.gateway,
        "proxy_api": installation.ports.proxy_api,
    }
    used = {name: port for name, port in ports.items() if not is_free(port)}
    if not used:
        yield ok("ports", "all ports are free")
    elif len(used) == len(ports):
        yield ok("ports", "all ports are in use, so the installation seems to run")
    else:
        text = ", ".join(f"{port} ({name})" for name, port in used.items())
        yield error(
            "ports",
            f"in use: {text}; the other ports are free",
            "stop the program that listens there, choose others in [ports], or start the "
            "components that do not run",
        )


def _secrets(installation: Installation) -> Iterator[Finding]:
    folder = Path(installation.state) / "secrets"
    if not folder.is_dir():
        yield error("secrets", f"{folder} is missing", "run bai-hub init")
        return
    files = [folder, *folder.iterdir()]
    if installation.database_password_file:
        files.append(Path(installation.database_password_file))
    for path in files:
        try:
            mode = path.stat().st_mode & 0o777
        except OSError as problem:
            yield error("secrets", f"{path}: {problem.strerror}", "create the file with mode 0600")
            return
        if mode & 0o077:
            yield error(
                "secrets",
                f"other users can access {path} (mode {mode:04o})",
                f"chmod go= {path}, and replace the secret if others may have read it",
            )
            return
    yield ok("secrets", "only their owner can read the files")


def _databases(installation: Installation) -> Iterator[Finding]:
    for name, url in (
        ("database", database_url),
        ("hub-database", hub_database_url),
    ):
        try:
            yield from _database(name, url(installation))
        except BaiError as problem:
            yield error(name, problem.message, "correct the section [database]")
        except (sa.exc.SQLAlchemyError, OSError) as problem:
            reason = str(getattr(problem, "orig", problem)).strip().splitlines()[0]
            yield error(
                name,
                f"it cannot be reached: {reason}",
                "check URL, password, and that the server runs and accepts this machine",
            )


def _database(name: str, url: str) -> Iterator[Finding]:
    if url.startswith("sqlite"):
        yield ok(name, "SQLite")
    else:
        engine = sa.create_engine(
            url, poolclass=sa.NullPool, connect_args={"connect_timeout": TIMEOUT_SECONDS}
        )
        with engine.connect() as connection:
            version = int(connection.scalar(sa.text("SHOW server_version_num")) or 0) // 10000
        if version < OLDEST_POSTGRES:
            yield error(
                name,
                f"PostgreSQL {version} is too old",
                f"upgrade the server to PostgreSQL {OLDEST_POSTGRES} or later",
            )
            return
        yield ok(name, f"PostgreSQL {version} responds")
    if name == "database":
        yield from _revision(url)


def _revision(url: str) -> Iterator[Finding]:
    current, known = schema.current(url), schema.revisions()
    if current is not None and current not in known:
        yield error(
            "schema",
            f"the database has revision {current}, which this version does not know",
            "install the later version again, or restore a backup",
        )
    elif current != known[-1]:
        yield warning(
            "schema",
            f"the database has revision {current or 'none'}, this version has {known[-1]}",
            "make a backup; the manager migrates the database when it starts",
        )
    else:
        yield ok("schema", f"the database has the newest revision, {current}")


def _storage(installation: Installation) -> Iterator[Finding]:
    for host in installation.storage_hosts():
        yield _storage_host(host)


def _storage_host(host: StorageHost) -> Finding:
    name, path = f"storage {host.name}", Path(host.path)
    if not path.is_dir():
        return error(name, f"{path} does not exist", "mount the file system, or create the folder")
    if not os.access(path, os.W_OK):
        return error(name, f"{path} is not writable", "check the mount options and the owner")
    free = shutil.disk_usage(path).free
    if free < MIN_FREE_BYTES:
        return warning(name, f"{path} has {free // 2**20} MiB free", "free space")
    return ok(name, f"{path} is writable, with {free // 2**30} GiB free")


def _engine(installation: Installation) -> Iterator[Finding]:
    if installation.engine is EngineKind.PROCESS:
        yield warning(
            "engine",
            f"sessions run as the user {installation.service_user}, without containers",
            "use the engine docker if the hub has more than one user",
        )
        return
    try:
        address = internal_address(installation)
    except BaiError as problem:
        yield error("engine", problem.message, "start Docker, and check DOCKER_HOST")
        return
    yield ok("engine", f"Docker responds; sessions reach the Hub at {address}")
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
        yield warning(
            "image",
            f"Docker has no image {installation.image}",
            "build it with images/session/build, or pull it",
        )
    else:
        yield ok("image", f"Docker has the image {installation.image}")


def _clock() -> Iterator[Finding]:
    now = datetime.fromtimestamp(time.time(), UTC)
    if now < EARLIEST:
        yield error("clock", f"it is {now:%Y-%m-%d} here", "set the clock; use NTP")
        return
    try:
        words = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == 0 and done.stdout.strip() == "no":
        yield warning("clock", "it is not synchronized", "enable NTP: timedatectl set-ntp true")
    else:
        yield ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC on {socket.gethostname()}")
