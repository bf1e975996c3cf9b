"""`bai ssh-key`: the public keys with which one may sign in to one's sessions."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bai_services.core.errors import AlreadyExists, InvalidRequest

from .. import output
from ..apps.ssh_client import make_pair
from ..command import Connection, connected, example, json_option, segment

COLUMNS = ("name", "fingerprint", "created_at")


@click.group("ssh-key")
def ssh_key() -> None:
    """Keep the public keys with which you sign in to your sessions."""


@ssh_key.command("ls", epilog=example("bai ssh-key ls"))
@json_option
@connected
async def list_(connection: Connection, *, as_json: bool) -> None:
    """List your keys."""
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
    """Add the public key of FILE (something.pub; - or nothing reads standard input)."""
    text = _read(file)
    made = await connection.client.post("/me/ssh-keys", {"name": name, "public_key": text.strip()})
    output.print_done(f"added {name}, {made['fingerprint']}", made, as_json=as_json)


@ssh_key.command(epilog=example("bai ssh-key generate laptop ~/.ssh/bai_key"))
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@json_option
@connected
async def generate(connection: Connection, name: str, file: Path | None, *, as_json: bool) -> None:
    """Make a key pair: into FILE and FILE.pub here, or without FILE shown once.

    The private key is kept by nobody but you.
    """
    if file is None:
        made = await connection.client.post("/me/ssh-keys", {"name": name})
        output.print_done(made["private_key"].rstrip(), made, as_json=as_json)
        if not as_json:
            output.note("this private key is shown only now: save it in a file of mode 0600")
        return
    public = file.with_name(file.name + ".pub")
    for one in (file, public):
        if one.exists():
            raise AlreadyExists(f"{one} is there already; name another file")
    make_pair(file, name)
    text = public.read_text(encoding="utf-8").strip()
    made = await connection.client.post("/me/ssh-keys", {"name": name, "public_key": text})
    made |= {"file": str(file)}
    output.print_done(f"added {name}; its private key is in {file}", made, as_json=as_json)


@ssh_key.command(epilog=example("bai ssh-key rm laptop"))
@click.argument("name")
@json_option
@connected
async def rm(connection: Connection, name: str, *, as_json: bool) -> None:
    """Remove a key: new connections with it are refused from now on."""
    await connection.client.delete(f"/me/ssh-keys/{segment(name)}")
    output.print_done(f"removed {name}", {"name": name}, as_json=as_json)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from None
