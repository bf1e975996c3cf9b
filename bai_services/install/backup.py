"""`bai-hub backup` and `bai-hub restore`: databases, secrets, settings, and folders on request."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from bai_services import __version__
from bai_services.core.errors import Conflict, InvalidRequest, Unavailable
from bai_services.core.installation.settings import FILE_NAME, Installation, moved, parse, render
from bai_services.db import schema

from .folder import database_url, home_of, hub_database_url, read_settings_file, sha256_of
from .setup import create_secrets, hand_over, write_files

FORMAT = 1
MANIFEST = "manifest.json"
SQLITE_NAMES = {"bai": "bai.sqlite", "jupyterhub": "jupyterhub.sqlite"}
# Members other than those of folders are extracted to a temporary folder.
MAX_MANIFEST_BYTES = 16 * 2**20
CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Summary:
    """Facts of a written or restored backup."""

    version: str
    created_at: str
    revision: str
    folders: tuple[str, ...]
    sha256: str


# --- Backup ------------------------------------------------------------------------------------


def back_up(folder: Path, target: Path, *, includes_folders: bool) -> Summary:
    """Write a backup to ``target`` (mode 0600), and its checksum to ``target``.sha256.

    The installation may run: each database is read in one snapshot. The state of the two databases
    can differ by the seconds between the snapshots; the reconciler repairs this after a restore.

    Raises
    ------
    Conflict
        If ``target`` exists.
    Unavailable
        If a database or a program (pg_dump, tar) fails.
    """
    if target.exists():
        raise Conflict(f"{target} exists already")
    installation = read_settings_file(folder)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with tempfile.TemporaryDirectory(prefix="bai-backup-", dir=target.parent) as name:
            stage = Path(name)
            manifest = _fill_stage(installation, folder, stage, includes_folders)
            with tarfile.open(partial, "w") as archive:
                for path in (stage / MANIFEST, *sorted(stage.rglob("*"))):
                    if path.is_file() and (path.name != MANIFEST or not archive.getnames()):
                        archive.add(path, str(path.relative_to(stage)))
        if includes_folders:
            for host in installation.storage_hosts():
                _append_folder(partial, host.name, Path(host.path))
        checksum = sha256_of(partial)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    target.with_name(f"{target.name}.sha256").write_text(f"{checksum}  {target.name}\n")
    return _summary(manifest, checksum)


def _fill_stage(
    installation: Installation, folder: Path, stage: Path, includes_folders: bool
) -> dict[str, Any]:
    (stage / "settings").mkdir()
    (stage / "secrets").mkdir(mode=0o700)
    (stage / "settings" / FILE_NAME).write_text(render(installation), encoding="utf-8")
    if installation.hub_config:
        shutil.copy(installation.hub_config, stage / "settings" / "hub_config.py")
    for secret in (home_of(installation).path / "secrets").iterdir():
        if secret.is_file():
            shutil.copy(secret, stage / "secrets" / secret.name)
    revision = schema.current(database_url(installation)) or ""
    _dump(installation, "bai", stage)
    _dump(installation, "jupyterhub", stage)
    files = {
        str(path.relative_to(stage)): sha256_of(path) for path in stage.rglob("*") if path.is_file()
    }
    hosts = [host.name for host in installation.storage_hosts()] if includes_folders else []
    manifest = {
        "format": FORMAT,
        "version": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": revision,
        "database": "sqlite" if installation.uses_sqlite else "postgresql",
        "folders": hosts,
        "files": files,
    }
    (stage / MANIFEST).write_text(json.dumps(manifest, indent=1))
    return manifest


def _dump(installation: Installation, name: str, stage: Path) -> None:
    if not installation.uses_sqlite:
        url = database_url(installation) if name == "bai" else hub_database_url(installation)
        _run_postgres("pg_dump", url, ["--format=custom", f"--file={stage / f'{name}.pgdump'}"])
        return
    copy = stage / SQLITE_NAMES[name]
    # The Hub creates its database at its first start; until then, the copy is empty.
    source = home_of(installation).database(SQLITE_NAMES[name])
    with (
        contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        # Copy in one step, because each write of the running hub would restart a copy in several
        # steps.
        database.backup(target, pages=-1)
    with open(copy, "rb") as plain, gzip.open(f"{copy}.gz", "wb", compresslevel=3) as packed:
        shutil.copyfileobj(plain, packed, CHUNK_BYTES)
    copy.unlink()


def _run_postgres(program: str, url: str, options: list[str]) -> None:
    """Run a client of PostgreSQL; the password is passed in its environment."""
    parts = urlsplit(url.replace("postgresql+psycopg", "postgresql", 1))
    variables = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8"}
    if parts.password is not None:
        variables["PGPASSWORD"] = unquote(parts.password)
        user, _, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{user.partition(':')[0]}@{host}")
    plain = urlunsplit(parts)
    words = [program, "--no-owner", "--no-privileges", f"--dbname={plain}", *options]
    _run(words, variables)


def _append_folder(archive: Path, name: str, root: Path) -> None:
    """Append the folders of a storage host, with owners, modes, access lists and attributes."""
    words = ["tar", "--append", f"--file={archive}", "--acls", "--xattrs", "--xattrs-include=*"]
    words += ["--numeric-owner", "--sparse", f"--transform=flags=rh;s,^\\.,folders/{name},"]
    # If a session changes a file during the read, tar stores the bytes read (exit code 1).
    _run([*words, f"--directory={root}", "."], None, accepted=(0, 1))


def _run(
    words: list[str], variables: Mapping[str, str] | None, accepted: tuple[int, ...] = (0,)
) -> None:
    try:
        done = subprocess.run(words, env=variables, capture_output=True, text=True)
    except FileNotFoundError:
        raise Unavailable(f"the program {words[0]} is not installed") from None
    if done.returncode not in accepted:
        raise Unavailable(f"{words[0]} failed: {done.stderr.strip()[-1000:]}")


# --- Restore -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Destination:
    """Destination of a restore; None: as in the backup."""

    folder: Path
    state: str | None = None
    storage: Mapping[str, str] | None = None
    values: Mapping[str, Any] | None = None


def restore(source: Path, destination: Destination) -> Summary:
    """Restore a backup to an empty folder, state folder and databases.

    Raises
    ------
    InvalidRequest
        If the file is not a backup, or a checksum differs.
    Conflict
        If the destination is not empty, or the backup is from a later version.
    """
    with _unpacked(source) as (stage, manifest):
        text = (stage / "settings" / FILE_NAME).read_text(encoding="utf-8")
        installation = moved(
            parse(text),
            state=destination.state,
            storage=destination.storage,
            **dict(destination.values or {}),
        )
        _check_destination(installation, destination.folder, manifest)
        with contextlib.ExitStack() as undo:
            _fill_state(installation, stage, undo)
            undo.pop_all()
        destination.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if installation.hub_config:
            Path(installation.hub_config).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(stage / "settings" / "hub_config.py", installation.hub_config)
    for host in installation.storage_hosts():
        if host.name in manifest["folders"]:
            _extract_folder(source, host.name, Path(host.path))
    # Write the settings last, so that an installation cannot start after a failed restore.
    (destination.folder / FILE_NAME).write_text(render(installation), encoding="utf-8")
    write_files(installation, destination.folder, overwrite=False)
    create_secrets(installation)
    hand_over(installation)
    return _summary(manifest, sha256_of(source))


@contextlib.contextmanager
def _unpacked(source: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a folder with the verified members of a backup, and its manifest."""
    checksum = source.with_name(f"{source.name}.sha256")
    if checksum.exists() and checksum.read_text().split()[:1] != [sha256_of(source)]:
        raise InvalidRequest(f"{source} differs from its checksum in {checksum}")
    with tempfile.TemporaryDirectory(prefix="bai-restore-") as name:
        stage = Path(name)
        try:
            with tarfile.open(source, "r:") as archive:
                manifest = _manifest(archive)
                for member in manifest["files"]:
                    archive.extract(archive.getmember(member), stage, filter="data")
        except (tarfile.TarError, KeyError, ValueError, TypeError, OSError) as error:
            raise InvalidRequest(f"{source} is not a valid backup: {error}") from None
        for member, expected in manifest["files"].items():
            if sha256_of(stage / member) != expected:
                raise InvalidRequest(f"{source}: the checksum of {member} differs")
        yield stage, manifest


def _manifest(archive: tarfile.TarFile) -> dict[str, Any]:
    first = archive.next()
    if first is None or first.name != MANIFEST or first.size > MAX_MANIFEST_BYTES:
        raise ValueError("it does not begin with a manifest")
    file = archive.extractfile(first)
    assert file is not None
    manifest: dict[str, Any] = json.loads(file.read())
    if manifest["format"] != FORMAT:
        raise ValueError(f"its format is {manifest['format']}, this version reads {FORMAT}")
    return manifest


def _check_destination(
    installation: Installation, folder: Path, manifest: Mapping[str, Any]
) -> None:
    if manifest["revision"] and manifest["revision"] not in schema.revisions():
        raise Conflict(
            f"the backup is from bai-hub {manifest['version']}, whose database is newer than that "
            f"of this version, {__version__}"
        )
    if (manifest["database"] == "sqlite") != installation.uses_sqlite:
        raise Conflict(f"the backup is of {manifest['database']}; restore it to the same kind")
    if (folder / FILE_NAME).exists():
        raise Conflict(f"{folder / FILE_NAME} exists; restore to another folder")
    home = Path(installation.state)
    if any((home / name).exists() for name in SQLITE_NAMES.values()):
        raise Conflict(f"{home} contains databases; name another folder with --state")
    if (home / "secrets").is_dir() and any((home / "secrets").iterdir()):
        # The existing installation could not read its database without its key.
        raise Conflict(f"{home / 'secrets'} contains secrets; name another folder with --state")
    for host in installation.storage_hosts():
        path = Path(host.path)
        if host.name in manifest["folders"] and path.is_dir() and any(path.iterdir()):
            raise Conflict(f"{path} is not empty; use --storage {host.name}=/PATH")
    if not installation.uses_sqlite:
        for option, url in (
            ("--database", database_url(installation)),
            ("--hub-database", hub_database_url(installation)),
        ):
            if schema.has_tables(url):
                raise Conflict(f"a database is not empty; create another one and use {option}")


def _fill_state(installation: Installation, stage: Path, undo: contextlib.ExitStack) -> None:
    """Restore secrets and databases; ``undo`` deletes the files that this call has created."""
    secrets = home_of(installation).path / "secrets"
    for secret in (stage / "secrets").iterdir():
        with open(secret, "rb") as source:
            _copy_new(source, secrets / secret.name, undo)
    for name in SQLITE_NAMES:
        _load(installation, name, stage, undo)


def _copy_new(source: IO[bytes] | gzip.GzipFile, target: Path, undo: contextlib.ExitStack) -> None:
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        undo.callback(target.unlink)
        shutil.copyfileobj(source, file, CHUNK_BYTES)


def _load(installation: Installation, name: str, stage: Path, undo: contextlib.ExitStack) -> None:
    if installation.uses_sqlite:
        target = home_of(installation).path / SQLITE_NAMES[name]
        with gzip.open(stage / f"{SQLITE_NAMES[name]}.gz") as source:
            _copy_new(source, target, undo)
        return
    url = database_url(installation) if name == "bai" else hub_database_url(installation)
    options = ["--exit-on-error", "--single-transaction", str(stage / f"{name}.pgdump")]
    _run_postgres("pg_restore", url, options)


def _extract_folder(source: Path, name: str, root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    words = ["tar", "--extract", f"--file={source}", "--acls", "--xattrs", "--xattrs-include=*"]
    words += ["--numeric-owner", "--same-permissions", "--strip-components=2"]
    _run([*words, f"--directory={root}", f"folders/{name}"], None)


def _summary(manifest: Mapping[str, Any], checksum: str) -> Summary:
    return Summary(
        version=manifest["version"],
        created_at=manifest["created_at"],
        revision=manifest["revision"],
        folders=tuple(manifest["folders"]),
        sha256=checksum,
    )
