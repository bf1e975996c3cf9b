"""`bai admin user`: sign-ins, approval and identities of a user."""

from __future__ import annotations

import click

from .. import output
from ..command import (
    Connection,
    connected,
    example,
    json_option,
    segment,
)


@click.command("sign-out", epilog=example("bai admin user sign-out ann"))
@click.argument("user")
@json_option
@connected
async def sign_out(connection: Connection, user: str, *, as_json: bool) -> None:
    """Revoke all tokens of a user and stop all their servers."""
    await connection.client.post(f"/users/{segment(user)}/sign-out")
    output.print_done(f"{user} is signed out everywhere", {"username": user}, as_json=as_json)


@click.command("approve", epilog=example("bai admin user approve ann"))
@click.argument("user")
@json_option
@connected
async def approve(connection: Connection, user: str, *, as_json: bool) -> None:
    """Activate an account that was created by a sign-up."""
    approved = await connection.client.post(f"/users/{segment(user)}/approve")
    output.print_done(f"{user} is approved", approved, as_json=as_json)


@click.command("unlock", epilog=example("bai admin user unlock ann"))
@click.argument("user")
@json_option
@connected
async def unlock(connection: Connection, user: str, *, as_json: bool) -> None:
    """Clear the failed sign-ins of a user and end their lockout.

    Blocked IP addresses remain blocked.
    """
    await connection.client.post(f"/users/{segment(user)}/unlock")
    output.print_done(f"{user} can sign in again", {"username": user}, as_json=as_json)


@click.command("reset-authenticator", epilog=example("bai admin user reset-authenticator ann"))
@click.argument("user")
@json_option
@connected
async def reset_authenticator(connection: Connection, user: str, *, as_json: bool) -> None:
    """Remove the authenticator for one-time codes of a user who has lost it."""
    await connection.client.delete(f"/users/{segment(user)}/authenticator")
    text = f"{user} no longer has an authenticator"
    output.print_done(text, {"username": user}, as_json=as_json)


@click.command("identities", epilog=example("bai admin user identities ann"))
@click.argument("user")
@json_option
@connected
async def identities(connection: Connection, user: str, *, as_json: bool) -> None:
    """List the identities of a user at OpenID providers."""
    found = await connection.client.get(f"/users/{segment(user)}/identities")
    page = {"items": found["items"], "total": len(found["items"])}
    columns = ("id", "provider", "subject", "created_at")
    output.print_page(page, columns, as_json=as_json, empty=f"no identity is linked to {user}")


@click.command("unlink-identity", epilog=example("bai admin user unlink-identity ann 0b5e…"))
@click.argument("user")
@click.argument("identity", metavar="ID")
@json_option
@connected
async def unlink_identity(
    connection: Connection, user: str, identity: str, *, as_json: bool
) -> None:
    """Remove an identity of a user, who can then no longer sign in with it."""
    await connection.client.delete(f"/users/{segment(user)}/identities/{segment(identity)}")
    done = {"username": user, "unlinked": identity}
    output.print_done(f"the identity is no longer linked to {user}", done, as_json=as_json)


USER_COMMANDS = (sign_out, approve, unlock, reset_authenticator, identities, unlink_identity)
