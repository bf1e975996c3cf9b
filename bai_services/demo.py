"""Create the demo data in the database: `python -m bai_services.demo`; idempotent."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from bai_services.bootstrap import (
    PROCESS_IMAGE,
    ensure_default_image,
    ensure_group,
    ensure_image,
    ensure_prerequisites,
    image_labels,
    is_missing,
)
from bai_services.core.accounts.passwords import broken_rules
from bai_services.core.accounts.records import NewKeypair
from bai_services.core.accounts.roles import Caller, Role
from bai_services.db import schema
from bai_services.db.accounts.users import UserStore
from bai_services.db.database import Database
from bai_services.environment import DEFAULT_IMAGE, read_settings
from bai_services.manager.accounts.passwords import PasswordHashes
from bai_services.manager.manager import Manager

DOMAINS = {"default": "Demo domain", "acme": "Another tenant"}
# Projects in addition to the project "default" of every domain: name and domain.
PROJECTS = {"research": "default"}
_PASSWORD_LETTERS = "bcdfghjkmnpqrstvwxyz"


@dataclass(frozen=True, slots=True)
class DemoUser:
    username: str
    role: Role
    domain: str
    full_name: str
    projects: tuple[str, ...] = ("default",)


USERS = (
    DemoUser("admin", Role.SUPERADMIN, "default", "Ada Admin"),
    DemoUser("domain-admin", Role.ADMIN, "default", "Dora Domain"),
    DemoUser("user", Role.USER, "default", "Uma User"),
    DemoUser("user2", Role.USER, "default", "Udo User"),
    DemoUser("acme-user", Role.USER, "acme", "Ann Acme"),
    DemoUser("monitor", Role.MONITOR, "default", "Mo Monitor", ()),
)

PRESETS: Mapping[str, Mapping[str, str]] = {
    "cpu-small": {"cpu": "1", "mem": "1g"},
    "cpu-medium": {"cpu": "2", "mem": "4g"},
    "gpu-quarter": {"cpu": "1", "mem": "2g", "cuda.shares": "0.25"},
    "gpu-half": {"cpu": "1", "mem": "4g", "cuda.shares": "0.5"},
    "gpu-whole": {"cpu": "2", "mem": "8g", "cuda.device": "1"},
}


class Demo:
    """Create missing demo objects through the manager's services."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._caller = Caller(Role.SUPERADMIN, username="demo")

    async def create(self, engine: str, image: str) -> dict[str, NewKeypair]:
        """Create the demo objects; return the keypairs of new users by user name.

        ``image`` is the target of the alias ``python``, the default image of the projects.
        """
        for name, description in DOMAINS.items():
            await ensure_prerequisites(self._manager, self._caller, name, description)
        for name, domain in PROJECTS.items():
            if await is_missing(self._manager.accounts.projects, self._caller, f"{domain}/{name}"):
                await self._manager.accounts.projects.create(
                    self._caller, {"name": name, "domain": domain}
                )
        await ensure_group(self._manager, self._caller, engine)
        labels = image_labels(image == PROCESS_IMAGE)
        await ensure_image(self._manager, self._caller, image, labels, "Demo session")
        await self._ensure_presets()
        for domain in DOMAINS:
            names = (
                "default",
                *(name for name, its_domain in PROJECTS.items() if its_domain == domain),
            )
            for name in names:
                await ensure_default_image(self._manager, self._caller, f"{domain}/{name}")
        return await self._ensure_users()

    async def _ensure_users(self) -> dict[str, NewKeypair]:
        keypairs = {}
        for user in USERS:
            if not await is_missing(self._manager.accounts.users, self._caller, user.username):
                continue
            created = await self._manager.accounts.users.create(
                self._caller,
                {
                    "username": user.username,
                    "email": f"{user.username}@example.com",
                    "full_name": user.full_name,
                    "role": user.role,
                    "domain": user.domain,
                    "projects": list(user.projects),
                },
            )
            keypairs[user.username] = created.keypair
        return keypairs

    async def _ensure_presets(self) -> None:
        for name, slots in PRESETS.items():
            if await is_missing(self._manager.cluster.presets, self._caller, name):
                spec = {"name": name, "resource_slots": slots}
                await self._manager.cluster.presets.create(self._caller, spec)


class DemoPasswords:
    """Set passwords without checking the password rules: automated tests use simple ones."""

    def __init__(self, manager: Manager) -> None:
        settings = manager.settings
        self._manager = manager
        self._users = UserStore(manager.database)
        self._passwords = PasswordHashes(settings.password_memory_kib, settings.password_rounds)

    async def has(self, username: str) -> bool:
        """Return whether the user has a password; an interrupted run may not have set it."""
        user = await self._users.find(username)
        return user is not None and user.password_changed_at is not None

    async def set(self, passwords: Mapping[str, str]) -> None:
        """Set passwords by user name; users with the same password share its hash."""
        texts = sorted(set(passwords.values()))
        hashes = await asyncio.gather(*map(self._passwords.hash, texts))
        hash_of = dict(zip(texts, hashes, strict=True))
        for username, password in passwords.items():
            await self._store(username, hash_of[password])

    async def _store(self, username: str, password_hash: str) -> None:
        caller = Caller(Role.SUPERADMIN, username="demo")
        user = await self._manager.accounts.users.get(caller, username)
        entry = self._manager.audit.entry(
            caller, "user.reset-password", user.id, domain=user.domain, name=username
        )
        await self._users.set_password(user.id, password_hash, self._manager.clock(), entry)


def random_password() -> str:
    """Return a password that is easy to type and satisfies the password rules."""
    groups = ["".join(secrets.choice(_PASSWORD_LETTERS) for _ in range(5)) for _ in range(3)]
    return "-".join(groups) + str(secrets.randbelow(90) + 10)


async def prepare(manager: Manager, arguments: argparse.Namespace, password: str) -> str:
    """Create the demo objects, set passwords, and return the table of accounts."""
    engine = arguments.engine
    image = arguments.image if engine == "docker" else PROCESS_IMAGE
    await Demo(manager).create(engine, image)
    setter = DemoPasswords(manager)
    chosen = {}
    for user in USERS:
        if password:
            chosen[user.username] = password
        elif arguments.reset_passwords or not await setter.has(user.username):
            chosen[user.username] = random_password()
    await setter.set(chosen)
    return accounts_text({} if password else chosen, bool(password))


def accounts_text(generated: Mapping[str, str], has_fixed_password: bool) -> str:
    """Return the table of accounts with newly generated passwords, and a note about passwords."""
    lines = ["  Accounts:"]
    for user in USERS:
        password = generated.get(user.username, "")
        line = f"    {user.username:<14}{user.role:<12}domain {user.domain:<10}{password}"
        lines.append(line.rstrip())
    if has_fixed_password:
        lines.append("  The password of every account is the value of BAI_DEMO_PASSWORD.")
    elif generated:
        lines.append("  The passwords are shown only once.")
    else:
        command = "python -m bai_services.demo --reset-passwords"
        lines.append(f"  The passwords are unchanged; generate new ones with: {command}")
    return "\n".join(lines)


async def run(arguments: argparse.Namespace, password: str) -> None:
    settings = read_settings(os.environ)
    await asyncio.to_thread(schema.upgrade, settings.database_url)
    manager = Manager(settings, Database(settings.database_url))
    try:
        text = await prepare(manager, arguments, password)
    finally:
        await manager.stop()
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bai_services.demo", description=__doc__)
    parser.add_argument(
        "--engine",
        choices=("process", "docker"),
        default=os.environ.get("BAI_ENGINE") or "process",
        help="engine of the resource group (default: BAI_ENGINE, else process)",
    )
    parser.add_argument(
        "--image",
        default=os.environ.get("BAI_IMAGE") or DEFAULT_IMAGE,
        help="image of sessions in Docker (default: BAI_IMAGE, else %(default)s)",
    )
    parser.add_argument(
        "--reset-passwords", action="store_true", help="generate new passwords and print them"
    )
    arguments = parser.parse_args()
    password = os.environ.get("BAI_DEMO_PASSWORD", "")
    if password and (broken := broken_rules(password, "", "")):
        print(f"warning: BAI_DEMO_PASSWORD {', '.join(broken)}", file=sys.stderr)
    asyncio.run(run(arguments, password))


if __name__ == "__main__":
    main()
