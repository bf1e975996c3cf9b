"""Create the first superadmin of an installation: `python -m bai_services.first_admin`."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
from collections.abc import Mapping

from bai_services.bootstrap import ensure_prerequisites
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import AlreadyExists, BaiError
from bai_services.core.listing import ListQuery
from bai_services.db import schema
from bai_services.db.database import Database
from bai_services.environment import read_settings
from bai_services.manager.manager import Manager

EXIT_REJECTED = 3


async def create_first_admin(manager: Manager, spec: Mapping[str, str]) -> str:
    """Create the account and its prerequisites; return the access key and the secret key of the
    account as text.

    Raises
    ------
    AlreadyExists
        If there is an active superadmin, or the name or e-mail address is in use.
    BaiError
        If the name, the e-mail address or the password breaks a rule.
    """
    caller = Caller(Role.SUPERADMIN, username="first-admin")
    if (username := await find_superadmin(manager, caller)) is not None:
        raise AlreadyExists(
            f"{username} is already a superadmin and can create others: "
            "bai admin user create NAME --role superadmin",
            username=username,
        )
    await ensure_prerequisites(manager, caller, spec["domain"])
    created = await manager.accounts.users.create(
        caller, {**spec, "role": Role.SUPERADMIN, "projects": ["default"]}
    )
    return f"access key {created.keypair.access_key}\nsecret key {created.keypair.secret_key}"


async def find_superadmin(manager: Manager, caller: Caller) -> str | None:
    """Return the name of an active superadmin; None if there is none."""
    query = ListQuery.parse({"role": Role.SUPERADMIN, "status": "active", "limit": "1"})
    page = await manager.accounts.users.page(caller, query)
    return page.items[0].username if page.items else None


async def run(spec: Mapping[str, str]) -> str:
    settings = read_settings(os.environ)
    await asyncio.to_thread(schema.upgrade, settings.database_url)
    manager = Manager(settings, Database(settings.database_url))
    try:
        return await create_first_admin(manager, spec)
    finally:
        await manager.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bai_services.first_admin", description=__doc__)
    parser.add_argument("username")
    parser.add_argument("email")
    parser.add_argument(
        "--domain",
        default="default",
        help="domain of the user; created if it is missing (default: %(default)s)",
    )
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from standard input"
    )
    options = parser.parse_args()
    if options.password_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = getpass.getpass("Password: ")
        if getpass.getpass("Repeat the password: ") != password:
            print("the passwords do not match", file=sys.stderr)
            return EXIT_REJECTED
    spec = {
        "username": options.username,
        "email": options.email,
        "domain": options.domain,
        "password": password,
    }
    try:
        keys = asyncio.run(run(spec))
    except BaiError as error:
        print(error.message, file=sys.stderr)
        return EXIT_REJECTED
    print(f"{options.username} is a superadmin and can sign in.\n{keys}")
    print("The secret key is shown only once.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
