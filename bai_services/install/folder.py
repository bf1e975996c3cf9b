"""Folder of an installation: settings, generated files, passwords."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from bai_services.core.errors import Conflict, InvalidRequest, NotFound
from bai_services.core.installation.settings import (
    FILE_NAME,
    MAX_FILE_BYTES,
    Installation,
    parse,
)
from bai_services.home import Home

# File with the SHA-256 of each file that `bai-hub init` wrote.
DIGESTS = ".generated.json"
MAX_PASSWORD_BYTES = 4096


def read_settings_file(folder: Path) -> Installation:
    """Return the settings in a folder.

    Raises
    ------
    NotFound
        If there is no ``bai-hub.toml``.
    InvalidRequest
        If the file cannot be read or a setting is invalid.
    """
    path = folder / FILE_NAME
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist; create it with: bai-hub init {folder}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from None
    try:
        return parse(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error.message}", **error.details) from None


def home_of(installation: Installation) -> Home:
    return Home(Path(installation.state))


def database_url(installation: Installation) -> str:
    """Return the SQLAlchemy URL of bai-hub's database, with the password."""
    if installation.uses_sqlite:
        return f"sqlite+aiosqlite:///{home_of(installation).database('bai.sqlite')}"
    return _with_password(installation, installation.database)


def hub_database_url(installation: Installation) -> str:
    """Return the SQLAlchemy URL of JupyterHub's database, with the password."""
    if installation.uses_sqlite:
        return f"sqlite:///{home_of(installation).database('jupyterhub.sqlite')}"
    return _with_password(installation, installation.hub_database_url())


def _with_password(installation: Installation, url: str) -> str:
    parts = urlsplit(url)._replace(scheme="postgresql+psycopg")
    if installation.database_password_file:
        password = quote(read_password(Path(installation.database_password_file)), safe="")
        user, at, host = parts.netloc.rpartition("@")
        if not at:
            raise InvalidRequest(
                "database.url has no user, but database.password_file is set",
                field="database.url",
            )
        parts = parts._replace(netloc=f"{user}:{password}@{host}")
    text = urlunsplit(parts)
    # urlunsplit omits an empty host, which means a Unix socket.
    return text if "://" in text else text.replace(":", "://", 1)


def read_password(path: Path) -> str:
    """Return the first line of a file.

    Raises
    ------
    InvalidRequest
        If the file cannot be read or is empty.
    """
    try:
        with open(path, encoding="utf-8") as file:
            password = file.readline(MAX_PASSWORD_BYTES).rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the password file {path} cannot be read: {error}") from None
    if not password:
        raise InvalidRequest(f"the password file {path} is empty")
    return password


def write_private(path: Path, text: str) -> None:
    """Replace a file by a new one with mode 0600."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


def program_path() -> str:
    """Return the path of `bai-hub` of this Python environment."""
    return str(Path(sys.prefix) / "bin" / "bai-hub")


def changed_files(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Return the files that were changed by hand and that ``files`` would overwrite."""
    written = _digests(folder)
    changed = []
    for name, text in files.items():
        path = folder / name
        if not path.exists():
            continue
        current = _digest(path.read_bytes())
        if current not in (written.get(name), _digest(text.encode())):
            changed.append(name)
    return changed


def write_generated(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Write generated files; return the names of those with a new content.

    Raises
    ------
    Conflict
        If someone has changed a file since it was generated; nothing is written.
    """
    if changed := changed_files(folder, files):
        raise Conflict(
            f"{', '.join(changed)} in {folder} was changed after bai-hub init had written it; "
            "remove or rename it, or use --overwrite",
            files=changed,
        )
    return _write(folder, files)


def overwrite_generated(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Write generated files; keep a changed one as ``NAME.orig``."""
    for name in changed_files(folder, files):
        (folder / name).replace(folder / f"{name}.orig")
    return _write(folder, files)


def _write(folder: Path, files: Mapping[str, str]) -> list[str]:
    new = []
    for name, text in files.items():
        path = folder / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
        new.append(name)
    digests = {name: _digest(text.encode()) for name, text in files.items()}
    (folder / DIGESTS).write_text(json.dumps(_digests(folder) | digests, indent=1) + "\n")
    return new


def _digests(folder: Path) -> dict[str, str]:
    try:
        content = json.loads((folder / DIGESTS).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
