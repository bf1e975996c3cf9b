"""`bai login`, `bai logout` and `bai password`."""

from __future__ import annotations

import asyncio
import getpass
import sys
from typing import Any
from urllib.parse import urlsplit

import click

from bai_services.client import Client, Keypair, Token
from bai_services.core.accounts.one_time_codes import CODE_NEEDED
from bai_services.core.errors import BaiError, NotSignedIn, SignInRefused

from .. import output, profile
from ..command import example, json_option
from . import browser

# Timeout of the request that revokes the token at sign-out.
REVOKE_TIMEOUT_SECONDS = 10
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command(
    epilog=example(
        "bai login https://hub.example.org", "bai login https://hub.example.org --user ann"
    )
)
@click.argument("url")
@click.option(
    "--user", metavar="NAME", help="Sign in with a password as this user (name or e-mail address)."
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--access-key", metavar="KEY", help="Sign in with this keypair.")
@click.option("--secret-key-stdin", is_flag=True, help="Read the secret key from standard input.")
@click.option(
    "--no-browser", is_flag=True, help="Print the URL of the sign-in page; open no browser."
)
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
    """Sign in to the hub at URL and save the credential for later commands.

    Without --user and --access-key, sign in with the browser. If the account has an authenticator,
    the command asks for the one-time code; with --password-stdin, it is the second line.
    """
    if user and access_key:
        raise click.UsageError("--user and --access-key are mutually exclusive")
    if password_stdin and not user:
        raise click.UsageError("--password-stdin needs --user NAME")
    if secret_key_stdin and not access_key:
        raise click.UsageError("--secret-key-stdin needs --access-key KEY")
    address = profile.hub_url(url)
    if not as_json:
        _warn_about_plain_http(address)
    if user:
        password = _secret("password", is_piped=password_stdin, option="--password-stdin")
        signed_in = asyncio.run(
            _sign_in_with_password(address, user, password, is_piped=password_stdin)
        )
    elif access_key:
        secret = _secret("secret key", is_piped=secret_key_stdin, option="--secret-key-stdin")
        signed_in = asyncio.run(_verified_profile(address, Keypair(access_key, secret)))
    else:
        signed_in = asyncio.run(_sign_in_with_browser(address, opens_browser=not no_browser))
    current, me = signed_in
    profile.save(current)
    if me.get("need_password_change"):
        output.note("you must change your password first: bai password")
    output.print_done(
        f"signed in to {current.url} as {me['username']} ({me['role']})",
        {"url": current.url, "username": me["username"], "role": me["role"]},
        as_json=as_json,
    )


@click.command(epilog=example("bai logout"))
@json_option
def logout(*, as_json: bool) -> None:
    """Revoke the token at the hub and delete the saved credential.

    A keypair is not revoked. The credential is deleted even if the hub cannot be reached.
    """
    current, problem = profile.load_saved(), ""
    has_token = current is not None and isinstance(current.credential, Token)
    try:
        if current is not None and has_token:
            problem = asyncio.run(_revoke(current))
    finally:
        was_signed_in = profile.delete_saved()
    if current is not None and problem and not as_json:
        output.note(f"the token could not be revoked: {problem}")
        output.note(f"the token stays valid until it expires; revoke it at {current.url}/hub/token")
    output.print_done(
        "signed out" if was_signed_in else "was not signed in",
        {"signed_out": was_signed_in, "token_withdrawn": not problem if has_token else None},
        as_json=as_json,
    )


@click.command(epilog=example("bai password"))
@click.option("--user", metavar="NAME", help="Your user name. Default: the signed-in user.")
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the old and the new password from standard input, one per line.",
)
@click.option(
    "--url", metavar="URL", help="URL of the hub. Default: the hub that you are signed in to."
)
@click.option(
    "--revoke-tokens",
    is_flag=True,
    help="Also revoke all your API tokens, including the token of bai itself.",
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
    """Change your password. With --user and --url this works without a sign-in.

    The change signs the account out of all browsers. If the account has an authenticator, the
    command asks for the one-time code; with --password-stdin, it is the third line.
    """
    address, name = profile.hub_url(url) if url else "", user or ""
    if not (address and name):
        try:
            current = profile.load()
        except NotSignedIn:
            raise click.UsageError("not signed in; pass --url URL and --user NAME") from None
        address, name = address or current.url, name or current.username
    if not name:
        raise click.UsageError("the user name is unknown; pass --user NAME")
    old = _secret("old password", is_piped=password_stdin, option="--password-stdin")
    new = _secret("new password", is_piped=password_stdin, option="--password-stdin")
    if not password_stdin and getpass.getpass("repeat the new password: ") != new:
        raise click.UsageError("the new passwords do not match")
    body: dict[str, Any] = {"name": name, "old_password": old, "new_password": new}
    if revoke_tokens:
        body["revoke_tokens"] = True
    asyncio.run(_post_with_code(address, "/auth/password", body, is_piped=password_stdin))
    output.print_done("password changed", {"username": name}, as_json=as_json)


async def _revoke(current: profile.Profile) -> str:
    """Revoke the token at the hub; return an error message, empty on success."""
    try:
        async with Client(
            current.service_url, current.credential, REVOKE_TIMEOUT_SECONDS
        ) as client:
            await client.delete("/auth/token")
    except NotSignedIn:
        return ""  # the token is already invalid
    except BaiError as error:
        return error.message
    return ""


async def _sign_in_with_password(
    url: str, name: str, password: str, *, is_piped: bool
) -> tuple[profile.Profile, Any]:
    body = {"name": name, "password": password}
    response = await _post_with_code(url, "/auth/token", body, is_piped=is_piped)
    return await _verified_profile(url, Token(response["token"]))


async def _sign_in_with_browser(url: str, *, opens_browser: bool) -> tuple[profile.Profile, Any]:
    code, verifier = await browser.request_code(url + profile.SERVICE, opens_browser=opens_browser)
    response = await _post(url, "/auth/code/redeem", {"code": code, "verifier": verifier})
    return await _verified_profile(url, Token(response["token"]))


async def _verified_profile(url: str, credential: Token | Keypair) -> tuple[profile.Profile, Any]:
    """Check a credential at the hub; return its profile and the response of ``/me``."""
    async with Client(url + profile.SERVICE, credential) as client:
        me = await client.get("/me")
    return profile.Profile(url, credential, me["username"]), me


async def _post(url: str, path: str, body: dict[str, Any]) -> Any:
    async with Client(url + profile.SERVICE) as client:
        return await client.post(path, body)


async def _post_with_code(url: str, path: str, body: dict[str, Any], *, is_piped: bool) -> Any:
    """Send a request with a password; if the account needs a one-time code, read and add it."""
    try:
        return await _post(url, path, body)
    except SignInRefused as error:
        if error.details.get("reason") != CODE_NEEDED:
            raise
    code = _secret("code of your authenticator", is_piped=is_piped, option="--password-stdin")
    return await _post(url, path, {**body, "code": code})


def _secret(what: str, *, is_piped: bool, option: str) -> str:
    """Return a secret from standard input if ``is_piped``, else from a prompt on the terminal."""
    if is_piped:
        # Strip only the newline: a password can begin or end with a space.
        secret = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        secret = getpass.getpass(f"{what}: ")
    else:
        raise click.UsageError(f"standard input is not a terminal; pass the {what} with {option}")
    if not secret:
        raise click.UsageError(f"the {what} is empty")
    return secret


def _warn_about_plain_http(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        output.note(
            f"warning: {url} is not encrypted; others can read everything that you send and receive"
        )
