"""`bai-hub init`: write the configuration, create the databases and the first administrator."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bai_services import __version__
from bai_services.bootstrap import (
    GROUP,
    PROCESS_IMAGE,
    ensure_default_image,
    ensure_group,
    ensure_image,
    image_labels,
)
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import AlreadyExists, Conflict, InvalidRequest
from bai_services.core.installation import containers, reverse_proxy, systemd
from bai_services.core.installation.settings import (
    FILE_NAME,
    EngineKind,
    Installation,
    render,
)
from bai_services.db import schema
from bai_services.db.database import Database
from bai_services.environment import read_settings
from bai_services.first_admin import create_first_admin
from bai_services.manager.manager import Manager

from .components import environment
from .folder import (
    home_of,
    overwrite_generated,
    program_path,
    read_settings_file,
    write_generated,
    write_private,
)


@dataclass(frozen=True, slots=True)
class FirstAdmin:
    username: str
    email: str
    password: str
    domain: str = "default"


def store_settings(folder: Path, wanted: Installation | None) -> Installation:
    """Write ``bai-hub.toml`` unless it exists; return the settings in force.

    Raises
    ------
    Conflict
        If the file exists with settings other than ``wanted``.
    """
    path = folder / FILE_NAME
    if path.exists() or wanted is None:
        current = read_settings_file(folder)
        if wanted is not None and wanted != current:
            raise Conflict(
                f"{path} exists with other settings; edit it and run bai-hub init {folder} "
                "without options"
            )
        return current
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_text(render(wanted), encoding="utf-8")
    return wanted


def generated_files(installation: Installation, folder: Path) -> dict[str, str]:
    """Return the units, the Compose and Stack files and the files of the reverse proxy."""
    program = systemd.Program(program_path(), str(folder))
    files = {f"systemd/{name}": text for name, text in systemd.units(installation, program).items()}
    files |= reverse_proxy.reverse_proxy_files(installation)
    if installation.engine is EngineKind.DOCKER:
        image = f"bai-hub:{__version__}"
        uid = _uid(installation.service_user)
        files["compose.yaml"] = containers.compose_file(installation, str(folder), image, uid)
        files["stack.yaml"] = containers.stack_file(installation, str(folder), image, uid)
        files["Dockerfile"] = containers.dockerfile(__version__)
    return files


def write_files(installation: Installation, folder: Path, *, overwrite: bool) -> list[str]:
    """Generate the files; return the names of those with a new content."""
    write = overwrite_generated if overwrite else write_generated
    return write(folder, generated_files(installation, folder))


def outdated_files(files: Mapping[str, str], folder: Path) -> list[str]:
    """Return the generated files that are missing or have another content."""
    return [
        name
        for name, text in files.items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    ]


def create_secrets(installation: Installation) -> None:
    """Create the state folder with all secrets; existing secrets are kept."""
    home = home_of(installation)
    for component in systemd.Component:
        environment(installation, Path("/"), component, "127.0.0.1")
    for name in ("proxy", "manager-api-token", "gateway-api-token"):
        home.secret(name)
    (home.path / "cache" / "numba").mkdir(parents=True, exist_ok=True)
    if not installation.storage:
        Path(installation.storage_hosts()[0].path).mkdir(exist_ok=True)


async def create_database(
    installation: Installation, folder: Path, admin: FirstAdmin | None
) -> bool:
    """Migrate bai-hub's database; create the resource group, the image and the first admin.

    Return whether the administrator was created; it is not if there is a superadmin.
    """
    variables = environment(installation, folder, systemd.Component.MANAGER, "127.0.0.1")
    settings = read_settings(variables)
    await asyncio.to_thread(schema.upgrade, settings.database_url)
    manager = Manager(settings, Database(settings.database_url))
    try:
        is_created = admin is not None and await _create_admin(manager, admin)
        if is_created:
            assert admin is not None
            await _create_defaults(manager, installation, admin.domain)
        return is_created
    finally:
        await manager.stop()


async def _create_admin(manager: Manager, admin: FirstAdmin) -> bool:
    spec = {
        "username": admin.username,
        "email": admin.email,
        "domain": admin.domain,
        "password": admin.password,
    }
    try:
        await create_first_admin(manager, spec)
    except AlreadyExists as error:
        if "superadmin" not in error.message:
            raise
        return False
    return True


async def _create_defaults(manager: Manager, installation: Installation, domain: str) -> None:
    caller = Caller(Role.SUPERADMIN, username="bai-hub")
    await ensure_group(manager, caller, installation.engine.value)
    is_process = installation.engine is EngineKind.PROCESS
    image = PROCESS_IMAGE if is_process else installation.image
    await ensure_image(manager, caller, image, image_labels(is_process), "Session image")
    await ensure_default_image(manager, caller, f"{domain}/{GROUP}")


def store_password(folder: Path, password: str) -> Path:
    """Write a generated password into a file that only its owner can read."""
    path = folder / "admin-password"
    write_private(path, f"{password}\n")
    return path


def hand_over(installation: Installation, files: Iterable[Path] = ()) -> None:
    """Make the service user the owner of the state folder; only root can and need do this.

    Raises
    ------
    InvalidRequest
        If there is no such user.
    """
    if os.geteuid() != 0 or installation.service_user == "root":
        return
    try:
        account = pwd.getpwnam(installation.service_user)
    except KeyError:
        raise InvalidRequest(
            f"there is no user {installation.service_user}; create it, for example with: "
            f"useradd --system --home-dir {installation.state} {installation.service_user}",
            field="service.user",
        ) from None
    home = home_of(installation).path
    for path in (home, *home.glob("*"), *(home / "secrets").glob("*"), *(home / "cache").glob("*")):
        if not path.is_symlink() and path != home / "vfolders":
            os.chown(path, account.pw_uid, account.pw_gid)
    for path in files:
        shutil.chown(path, account.pw_uid, account.pw_gid)


def _uid(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def next_steps(installation: Installation, folder: Path) -> list[str]:
    """Return the commands with which an administrator starts the installation."""
    steps = [
        f"bai-hub check {folder}",
        f"install -m 644 {folder}/systemd/*.service {folder}/systemd/*.target /etc/systemd/system/",
        f"systemctl daemon-reload && systemctl enable --now {systemd.TARGET}",
    ]
    names: Mapping[str, str] = reverse_proxy.reverse_proxy_files(installation)
    if names:
        place = "/etc/caddy" if "Caddyfile" in names else "/etc/traefik"
        files = " ".join(f"{folder}/{name}" for name in names)
        steps.insert(2, f"install -m 644 {files} {place}/")
    return steps
