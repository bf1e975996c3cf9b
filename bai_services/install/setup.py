"""`bai-hub init`: write the configuration, create the databases and the first administrator."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bai_services import __version__
from bai_services.bootstrap import (
    GROUP,
    PROCESS_IMAGE,
    ensure_default_image,
    ensure_group,
    ensure_image,
    ensure_prerequisites,
    image_labels,
)
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import Conflict, InvalidRequest
from bai_services.core.installation import containers, reverse_proxy, systemd
from bai_services.core.installation.settings import (
    FILE_NAME,
    EngineKind,
    Installation,
    render,
)
from bai_services.db import schema
from bai_services.db.database import Database
from bai_services.demo import random_password
from bai_services.environment import read_settings
from bai_services.first_admin import create_first_admin, find_superadmin
from bai_services.manager.manager import Manager

from .components import environment
from .folder import (
    home_of,
    overwrite_generated,
    program_path,
    read_password,
    read_settings_file,
    write_generated,
    write_private,
)

PASSWORD_FILE = "admin-password"


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
    caller = Caller(Role.SUPERADMIN, username="bai-hub")
    try:
        if admin is None or await find_superadmin(manager, caller) is not None:
            return False
        await ensure_prerequisites(manager, caller, admin.domain)
        # Create the administrator last: after an interruption, the next init then creates the
        # missing defaults, too.
        await _create_defaults(manager, caller, installation, admin.domain)
        await create_first_admin(manager, asdict(admin))
        return True
    finally:
        await manager.stop()


async def _create_defaults(
    manager: Manager, caller: Caller, installation: Installation, domain: str
) -> None:
    await ensure_group(manager, caller, installation.engine.value)
    is_process = installation.engine is EngineKind.PROCESS
    image = PROCESS_IMAGE if is_process else installation.image
    await ensure_image(manager, caller, image, image_labels(is_process), "Session image")
    await ensure_default_image(manager, caller, f"{domain}/{GROUP}")


def store_password(folder: Path) -> tuple[str, bool]:
    """Return a generated password, and whether this call has written it to its file.

    The file is written before the account is created: an interrupted init must not leave an account
    with an unknown password. An existing file is kept, and its password returned.
    """
    path = folder / PASSWORD_FILE
    if path.exists():
        return read_password(path), False
    password = random_password()
    write_private(path, f"{password}\n")
    return password, True


def service_account(installation: Installation) -> pwd.struct_passwd | None:
    """Return the owner of the state folder; None if the owner of its files need not be changed,
    or if only root could change it.

    Raises
    ------
    InvalidRequest
        If there is no such user.
    """
    if os.geteuid() != 0 or installation.service_user == "root":
        return None
    try:
        return pwd.getpwnam(installation.service_user)
    except KeyError:
        raise InvalidRequest(
            f"there is no user {installation.service_user}; create it, for example with: "
            f"useradd --system --home-dir {installation.state} {installation.service_user}",
            field="service.user",
        ) from None


def hand_over(installation: Installation) -> None:
    """Make the service user the owner of the state folder.

    Links are not followed: the service user, who can create them, must not get other files.

    Raises
    ------
    InvalidRequest
        If there is no such user.
    """
    if (account := service_account(installation)) is None:
        return
    owner = account.pw_uid, account.pw_gid
    home = os.open(installation.state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _give_folder(home, owner, without=("vfolders",))
        for name in ("secrets", "cache"):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            with contextlib.suppress(OSError):  # a link
                folder = os.open(name, flags, dir_fd=home)
                try:
                    _give_folder(folder, owner)
                finally:
                    os.close(folder)
    finally:
        os.close(home)


def _give_folder(folder: int, owner: tuple[int, int], without: Iterable[str] = ()) -> None:
    os.fchown(folder, *owner)
    for name in set(os.listdir(folder)).difference(without):
        os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)


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
