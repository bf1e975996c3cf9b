"""Signing in and out."""

from __future__ import annotations

import asyncio
import getpass
import sys
from typing import Any
from urllib.parse import urlsplit

import click

from bai_services.client import Client, Keypair, Token
from bai_services.core.errors import BaiError, NotSignedIn

from .. import output, profile
from ..command import example, json_option
from . import browser

# How long signing out waits for a hub that does not answer.
WITHDRAW_SECONDS = 10
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command(
    epilog=example(
        "bai login https://hub.example.org", "bai login https://hub.example.org --user ann"
    )
)
@click.argument("url")
@click.option("--user", metavar="NAME", help="User name or e-mail; signs in with a password.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--access-key", metavar="KEY", help="Sign in with a keypair instead.")
@click.option("--secret-key-stdin", is_flag=True, help="Read the secret key from standard input.")
@click.option("--no-browser", is_flag=True, help="Only print the address of the sign-in page.")
@json_option
def login(
    url: str,
    *,
    user: str | None,
    password_stdin: bool,
    access_key: str | None,
    secret_key_stdin: bool,
    no_browser: bool,
    as_json: bool,
) -> None:
    """Sign in at the hub at URL and remember it for later commands.

    Without --user and --access-key the browser's sign-in is used.
    """
    if user and access_key:
        raise click.UsageError("--user and --access-key exclude each other")
    if password_stdin and not user:
        raise click.UsageError("--password-stdin needs --user NAME")
    if secret_key_stdin and not access_key:
        raise click.UsageError("--secret-key-stdin needs --access-key KEY")
    address = profile.hub_url(url)
    if not as_json:
        _warn_of_plain_http(address)
    if user:
        password = _secret("password", is_piped=password_stdin, option="--password-stdin")
        found = asyncio.run(_by_password(address, user, password))
    elif access_key:
        secret = _secret("secret key", is_piped=secret_key_stdin, option="--secret-key-stdin")
        found = asyncio.run(_known(address, Keypair(access_key, secret)))
    else:
        found = asyncio.run(_by_browser(address, opens=not no_browser))
    current, me = found
    profile.save(current)
    if me.get("need_password_change"):
        output.note("the password must be changed before anything else: bai password")
    output.print_done(
        f"signed in at {current.url} as {me['username']} ({me['role']})",
        {"url": current.url, "username": me["username"], "role": me["role"]},
        as_json=as_json,
    )


@click.command(epilog=example("bai logout"))
@json_option
def logout(*, as_json: bool) -> None:
    """Withdraw the token at the hub, and forget hub and credential.

    A keypair stays as it is. When the hub is away everything is forgotten all the same.
    """
    current, problem = profile.saved(), ""
    has_token = current is not None and isinstance(current.credential, Token)
    try:
        if current is not None and has_token:
            problem = asyncio.run(_withdraw(current))
    finally:
        was_signed_in = profile.forget()
    if current is not None and problem and not as_json:
        output.note(f"the token could not be withdrawn: {problem}")
        output.note(f"it holds until it ends by itself, or is revoked at {current.url}/hub/token")
    output.print_done(
        "signed out" if was_signed_in else "was not signed in",
        {"signed_out": was_signed_in, "token_withdrawn": not problem if has_token else None},
        as_json=as_json,
    )


@click.command(epilog=example("bai password"))
@click.option("--user", metavar="NAME", help="Whose password; default: who is signed in.")
@click.option(
    "--password-stdin", is_flag=True, help="Read the old and the new password, a line each."
)
@click.option("--url", metavar="URL", help="The hub's address; default: where one is signed in.")
@click.option(
    "--revoke-tokens", is_flag=True, help="Revoke all API tokens too, that of bai as well."
)
@json_option
def password(
    *,
    user: str | None,
    password_stdin: bool,
    url: str | None,
    revoke_tokens: bool,
    as_json: bool,
) -> None:
    """Change one's own password, also one that must be changed before signing in.

    All browsers that are signed in to the account are signed out.
    """
    address, name = profile.hub_url(url) if url else "", user or ""
    if not (address and name):
        try:
            current = profile.load()
        except NotSignedIn:
            raise click.UsageError("not signed in: say --url URL and --user NAME") from None
        address, name = address or current.url, name or current.username
    if not name:
        raise click.UsageError("say whose password: --user NAME")
    old = _secret("old password", is_piped=password_stdin, option="--password-stdin")
    new = _secret("new password", is_piped=password_stdin, option="--password-stdin")
    if not password_stdin and getpass.getpass("new password again: ") != new:
        raise click.UsageError("the new passwords differ")
    body: dict[str, Any] = {"name": name, "old_password": old, "new_password": new}
    if revoke_tokens:
        body["revoke_tokens"] = True
    asyncio.run(_post(address, "/auth/password", body))
    output.print_done("password changed", {"username": name}, as_json=as_json)


async def _withdraw(current: profile.Profile) -> str:
    """Have the hub forget the token; return why it cannot be, empty when it is done."""
    try:
        async with Client(current.service_url, current.credential, WITHDRAW_SECONDS) as client:
            await client.delete("/auth/token")
    except NotSignedIn:
        return ""  # it does not hold any more
    except BaiError as error:
        return error.message
    return ""


async def _by_password(url: str, name: str, password: str) -> tuple[profile.Profile, Any]:
    answer = await _post(url, "/auth/token", {"name": name, "password": password})
    return await _known(url, Token(answer["token"]))


async def _by_browser(url: str, *, opens: bool) -> tuple[profile.Profile, Any]:
    code, verifier = await browser.ask(url + profile.SERVICE, opens=opens)
    answer = await _post(url, "/auth/code/redeem", {"code": code, "verifier": verifier})
    return await _known(url, Token(answer["token"]))


async def _known(url: str, credential: Token | Keypair) -> tuple[profile.Profile, Any]:
    """Return the profile of a credential that the hub has accepted."""
    async with Client(url + profile.SERVICE, credential) as client:
        me = await client.get("/me")
    return profile.Profile(url, credential, me["username"]), me


async def _post(url: str, path: str, body: dict[str, Any]) -> Any:
    async with Client(url + profile.SERVICE) as client:
        return await client.post(path, body)


def _secret(what: str, *, is_piped: bool, option: str) -> str:
    if is_piped:
        # Only the line's end is taken off: a password may begin or end with a blank.
        secret = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        secret = getpass.getpass(f"{what}: ")
    else:
        raise click.UsageError(f"there is no terminal to ask for the {what}; use {option}")
    if not secret:
        raise click.UsageError(f"the {what} is empty")
    return secret


def _warn_of_plain_http(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        output.note(f"warning: {url} is not encrypted; others can read the password on its way")
