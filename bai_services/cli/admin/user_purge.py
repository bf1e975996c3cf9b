"""`bai admin user purge`: remove users permanently."""

from __future__ import annotations

import sys

import click

from bai_services.core.accounts.user_purges import PurgeAction
from bai_services.core.counts import counted
from bai_services.core.errors import BaiError

from .. import output
from ..command import Choice, Connection, connected, example, json_option, segment

_ACTIONS = Choice([action.value for action in PurgeAction])


@click.command(
    "purge",
    epilog=example(
        "bai admin user purge ann --new-owner bob",
        "bai admin user purge ann eve --folders delete --yes",
    ),
)
@click.argument("users", metavar="USER…", nargs=-1, required=True)
@click.option(
    "--folders", type=_ACTIONS, default=PurgeAction.TRANSFER.value,
    help="Transfer the user's folders (the default) or delete them with all files.",
)  # fmt: skip
@click.option(
    "--shared-folders", type=_ACTIONS, default=PurgeAction.TRANSFER.value,
    help="The same for folders that are shared with other users. Default: transfer.",
)  # fmt: skip
@click.option(
    "--new-owner", metavar="NAME", default="",
    help="User who gets the transferred folders. Default: you.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@connected
async def purge_users(
    connection: Connection,
    users: tuple[str, ...],
    *,
    folders: str,
    shared_folders: str,
    new_owner: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove inactive users permanently; statistics and the audit log keep an anonymous account.

    The users' sessions must have ended. If a user cannot be purged, the other users are still
    purged, and the exit code is 1.
    """
    if not yes:
        _confirm(users)
    body = {"folders": folders, "shared_folders": shared_folders, "new_owner": new_owner}
    purged, failed = [], []
    for user in users:
        try:
            result = await connection.client.post(f"/users/{segment(user)}/purge", body)
        except BaiError as error:
            failed.append({"user": user, "error": error.code, "message": error.message})
        else:
            purged.append({"user": user, **result})
    lines = [
        f"{row['user']} is purged: {counted(row['transferred_folders'], 'folders')} transferred, "
        f"{row['deleted_folders']} deleted"
        for row in purged
    ]
    lines += [f"{row['user']} is not purged: {row['message']}" for row in failed]
    output.print_done("\n".join(lines), {"purged": purged, "failed": failed}, as_json=as_json)
    if failed:
        sys.exit(1)


def _confirm(users: tuple[str, ...]) -> None:
    """Require the name of the only user, or ``purge N`` for N users, before anything changes."""
    if not sys.stdin.isatty():
        raise click.UsageError("standard input is not a terminal; pass --yes to confirm")
    phrase = users[0] if len(users) == 1 else f"purge {len(users)}"
    typed = click.prompt(f"This cannot be undone. Type {phrase!r} to purge", err=True)
    if typed != phrase:
        raise click.UsageError("the text does not match; nothing was purged")
