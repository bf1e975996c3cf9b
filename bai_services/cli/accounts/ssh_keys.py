"""`bai ssh-key`: manage the public SSH keys that your sessions accept."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bai_services.core.errors import AlreadyExists, InvalidRequest

from .. import output
from ..apps.ssh_client import generate_key_pair
from ..command import Connection, command_group, connected, example, json_option, segment

COLUMNS = ("name", "fingerprint", "created_at")


@command_group("ssh-key")
def ssh_key() -> None:
    """Manage the public SSH keys that your sessions accept."""


@ssh_key.command("ls", epilog=example("bai ssh-key ls"))
@json_option
@connected
async def list_(connection: Connection, *, as_json: bool) -> None:
    """List your public SSH keys."""
    found = await connection.client.get("/me/ssh-keys")
    if as_json:
        output.print_json(found)
    else:
        empty = "no keys yet; add one: bai ssh-key add NAME FILE"
        output.print_table(found["items"], COLUMNS, empty=empty)


@ssh_key.command(epilog=example("bai ssh-key add laptop ~/.ssh/id_ed25519.pub"))
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@json_option
@connected
async def add(connection: Connection, name: str, file: str, *, as_json: bool) -> None:
    """Add the public key in FILE, for example id_ed25519.pub. Default: standard input (-)."""
    body = {"name": name, "public_key": _read(file).strip()}
    key = await connection.client.post("/me/ssh-keys", body)
    output.print_done(f"added key {name}, {key['fingerprint']}", key, as_json=as_json)


@ssh_key.command(epilog=example("bai ssh-key generate laptop ~/.ssh/bai_key"))
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@json_option
@connected
async def generate(connection: Connection, name: str, file: Path | None, *, as_json: bool) -> None:
    """Generate a key pair in FILE and FILE.pub, and add the public key.

    Without FILE, the hub generates the pair and the command prints the private key. The
    hub does not store private keys.
    """
    if file is None:
        key = await connection.client.post("/me/ssh-keys", {"name": name})
        output.print_done(key["private_key"].rstrip(), key, as_json=as_json)
        if not as_json:
            output.note("this private key is shown only once: save it in a file of mode 0600")
        return
    public = file.with_name(file.name + ".pub")
    for one in (file, public):
        if one.exists():
            raise AlreadyExists(f"{one} already exists; choose another file")
    generate_key_pair(file, name)
    text = public.read_text(encoding="utf-8").strip()
    key = await connection.client.post("/me/ssh-keys", {"name": name, "public_key": text})
    key |= {"file": str(file)}
    output.print_done(f"added key {name}; its private key is in {file}", key, as_json=as_json)


@ssh_key.command(epilog=example("bai ssh-key rm laptop"))
@click.argument("name")
@json_option
@connected
async def rm(connection: Connection, name: str, *, as_json: bool) -> None:
    """Delete a key; sessions then reject new SSH connections that use it."""
    await connection.client.delete(f"/me/ssh-keys/{segment(name)}")
    output.print_done(f"deleted key {name}", {"name": name}, as_json=as_json)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from None
