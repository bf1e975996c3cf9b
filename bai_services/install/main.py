"""`bai-hub`: set up, check, back up, restore and upgrade an installation."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Any, NoReturn

import click

from bai_services import __version__
from bai_services.cli import failures
from bai_services.cli.text import json_text
from bai_services.core.errors import InvalidRequest, Unavailable
from bai_services.core.installation.settings import (
    FILE_NAME,
    EngineKind,
    Installation,
    Ports,
    StorageHost,
    Tls,
    check,
    storage_host,
)
from bai_services.core.installation.systemd import Component

DEFAULT_FOLDER = "/etc/bai-hub"
DEFAULT_STATE = "/var/lib/bai-hub"


class Group(click.Group):
    """Map every failure to a message and an exit code, as `bai` does."""

    def main(  # type: ignore[override]  # no standalone_mode: this method maps the exit codes
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **_: Any
    ) -> NoReturn:
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(arguments, prog_name="bai-hub", standalone_mode=False)
        except (click.Abort, KeyboardInterrupt):
            code = failures.INTERRUPTED
        except SystemExit as exit:  # an invalid variable in [environment]
            if isinstance(exit.code, str):
                failures.show(InvalidRequest(exit.code), as_json="--json" in arguments)
                code = failures.WRONG_USAGE
            else:
                code = exit.code
        except Exception as caught:
            if os.environ.get("BAI_DEBUG"):
                raise
            error = _readable(caught)
            failures.show(error, as_json="--json" in arguments)
            code = failures.exit_code(error)
        sys.exit(code if isinstance(code, int) else failures.SUCCESS)


def _readable(error: Exception) -> Exception:
    """Convert a database error to an error with its reason; return other errors unchanged."""
    from sqlalchemy.exc import DBAPIError

    from bai_services.db.schema import MigrationFailed

    if isinstance(error, MigrationFailed):
        return Unavailable(str(error))
    if not isinstance(error, DBAPIError):
        return error
    reason = str(error.orig).strip() or "no reason is given"
    return Unavailable(f"the database does not respond: {reason.splitlines()[0]}")


def folder_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument(
        "folder",
        default=DEFAULT_FOLDER,
        type=click.Path(file_okay=False, path_type=Path),
        callback=lambda context, parameter, value: value.absolute(),
    )(command)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bai-hub")
def main() -> None:
    """Set up and operate a bai-hub installation.

    FOLDER contains its settings, bai-hub.toml; the default is /etc/bai-hub.

    \b
    A new installation:
        bai-hub init --host hub.example.org --certificate /etc/ssl/hub.pem \\
            --certificate-key /etc/ssl/hub.key --admin admin --admin-email admin@example.org
        bai-hub check
    """


def _storage_option(
    _: click.Context, __: click.Parameter, values: Sequence[str]
) -> tuple[StorageHost, ...]:
    hosts = []
    for text in values:
        name, equals, location = text.partition("=")
        backend, colon, path = location.partition(":")
        if not equals or not colon:
            raise click.BadParameter(f"{text!r} is not NAME=BACKEND:/PATH")
        hosts.append(storage_host(name, backend, str(Path(path).absolute()) if path else path))
    return tuple(hosts)


@main.command("init")
@folder_argument
@click.option("--host", help="Name under which users open the hub, such as hub.example.org.")
@click.option("--bind", help="Address on which the hub listens. Default: every address.")
@click.option(
    "--internal-address",
    "internal",
    help="IPv4 address of this machine for the machines of a cluster. Default: that of Docker's "
    "bridge, so sessions run only on this machine.",
)
@click.option(
    "--managers-address",
    "managers",
    help="IPv4 address of a load balancer in front of several managers. Default: one manager.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Public port. Default: 443.")
@click.option(
    "--tls",
    type=click.Choice([mode.value for mode in Tls]),
    help="Who terminates TLS: certificate (the hub, with your certificate), caddy or traefik "
    "(with ACME), external (your own reverse proxy). Default: certificate.",
)
@click.option("--certificate", help="File with the certificate and its chain (PEM).")
@click.option("--certificate-key", help="File with the key of the certificate (PEM).")
@click.option("--acme-email", help="E-mail address of the ACME account, for caddy and traefik.")
@click.option(
    "--database",
    help="URL of a PostgreSQL database, without password. Default: SQLite in the state folder.",
)
@click.option(
    "--hub-database",
    help="URL of JupyterHub's database. Default: --database with the suffix _jupyterhub.",
)
@click.option("--database-password-file", help="File with the password of the database.")
@click.option(
    "--engine",
    type=click.Choice([kind.value for kind in EngineKind]),
    help="Engine of sessions: docker (default), or process for a machine with a single user.",
)
@click.option("--image", help="Session image of the engine docker.")
@click.option(
    "--storage",
    multiple=True,
    callback=_storage_option,
    help="Storage host NAME=BACKEND:/PATH; repeatable; the first is the default.",
)
@click.option("--state", help=f"Folder of databases and secrets. Default: {DEFAULT_STATE}.")
@click.option("--user", help="User of the services. Default: bai-hub.")
@click.option(
    "--internal-ports",
    type=click.IntRange(1024, 65000),
    help="First of five ports for connections among the components. Default: 8000, 8001, 8081, "
    "8091, 8092.",
)
@click.option("--admin", help="User name of the first administrator.")
@click.option("--admin-email", help="E-mail address of the first administrator.")
@click.option(
    "--admin-password-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the password. Default: asked on a terminal, else generated into the file "
    "admin-password.",
)
@click.option("--overwrite", is_flag=True, help="Replace changed files; keep them as NAME.orig.")
@click.option("--no-input", is_flag=True, help="Ask no questions.")
def init(folder: Path, **options: Any) -> None:
    """Write the configuration of an installation, and create its database.

    Asks for missing settings on a terminal. Repeat it after each change of bai-hub.toml: files are
    generated again, secrets and accounts are kept. Files that you have changed are not overwritten.

    \b
    Example:
        bai-hub init /etc/bai-hub --host hub.example.org --tls caddy \\
            --acme-email admin@example.org --database postgresql://bai@db.example.org/bai \\
            --database-password-file /etc/bai-hub/database-password \\
            --storage local=local:/srv/folders --admin admin --admin-email admin@example.org
    """
    # These modules import the manager, which is slow; `bai-hub --help` does not need them.
    from . import setup

    asks = sys.stdin.isatty() and not options["no_input"]
    wanted = _wanted(folder, options, asks)
    installation = setup.store_settings(folder, wanted)
    setup.service_account(installation)  # before any other change
    if installation.engine is EngineKind.PROCESS:
        click.echo(
            "warning: with the engine process, sessions run as the user "
            f"{installation.service_user}; use it only on a machine with a single user",
            err=True,
        )
    for name in setup.write_files(installation, folder, overwrite=options["overwrite"]):
        click.echo(f"wrote {folder / name}")
    setup.create_secrets(installation)
    admin, password = _first_admin(folder, options, asks)
    is_created = asyncio.run(setup.create_database(installation, folder, admin))
    setup.hand_over(installation)
    click.echo(f"state: {installation.state}")
    if is_created and admin is not None:
        click.echo(f"{admin.username} is a superadmin and can sign in.")
        if password is not Password.GIVEN:
            click.echo(f"password: in {folder / setup.PASSWORD_FILE}")
    elif admin is not None:
        if password is Password.NEW:
            (folder / setup.PASSWORD_FILE).unlink()
        click.echo("There is a superadmin already; no account was created.")
    click.echo("\nNext steps:")
    for step in setup.next_steps(installation, folder):
        click.echo(f"    {step}")


def _wanted(folder: Path, options: dict[str, Any], asks: bool) -> Installation | None:
    """Return the settings from options and answers; None if bai-hub.toml contains them."""
    names = (
        "host", "bind", "internal", "managers", "port", "tls", "certificate", "certificate_key",
        "acme_email", "database", "hub_database", "database_password_file", "engine", "image",
        "storage", "state", "user", "internal_ports",
    )  # fmt: skip
    given = {name: options[name] for name in names if options[name] not in (None, ())}
    if (folder / FILE_NAME).exists() and not given:
        return None
    if asks and "host" not in given:
        given |= _answers(given)
    if "host" not in given:
        raise click.UsageError("--host is missing")
    return _installation(given)


def _installation(given: dict[str, Any]) -> Installation:
    values = dict(given)
    for name in ("certificate", "certificate_key", "database_password_file", "state"):
        if name in values:
            values[name] = str(Path(values[name]).absolute())
    values.setdefault("state", DEFAULT_STATE)
    values["tls"] = Tls(values.get("tls", Tls.CERTIFICATE))
    values["engine"] = EngineKind(values.get("engine", EngineKind.DOCKER))
    if "user" in values:
        values["service_user"] = values.pop("user")
    if first := values.pop("internal_ports", None):
        values["ports"] = Ports(*range(first, first + 5))
    installation = Installation(**values)
    check(installation)
    return installation


def _answers(given: dict[str, Any]) -> dict[str, Any]:
    """Ask for the settings that every installation needs."""
    answers: dict[str, Any] = {"host": click.prompt("Name of the hub (hub.example.org)")}
    tls = given.get("tls") or click.prompt(
        "TLS", type=click.Choice([mode.value for mode in Tls]), default=Tls.CERTIFICATE.value
    )
    answers["tls"] = tls
    if tls == Tls.CERTIFICATE and "certificate" not in given:
        answers["certificate"] = click.prompt("File of the certificate")
        answers["certificate_key"] = click.prompt("File of its key")
    elif tls in (Tls.CADDY, Tls.TRAEFIK) and "acme_email" not in given:
        answers["acme_email"] = click.prompt("E-mail address for the ACME account")
    if "database" not in given:
        url = click.prompt("URL of PostgreSQL without password (empty: SQLite)", default="")
        if url:
            answers["database"] = url
            answers["database_password_file"] = click.prompt("File with its password", default="")
    if "engine" not in given:
        answers["engine"] = click.prompt(
            "Engine", type=click.Choice(list(EngineKind)), default=EngineKind.DOCKER.value
        )
    return {name: value for name, value in answers.items() if value}


class Password(Enum):
    """Origin of the administrator's password; ``STORED``: generated by an earlier init."""

    GIVEN = auto()
    NEW = auto()
    STORED = auto()


def _first_admin(folder: Path, options: dict[str, Any], asks: bool) -> tuple[Any, Password]:
    """Return the first administrator (None: not given), and the origin of the password."""
    from .folder import read_password
    from .setup import FirstAdmin, store_password

    username, email = options["admin"], options["admin_email"]
    if not username:
        return None, Password.GIVEN
    if not email:
        raise click.UsageError("--admin-email is missing")
    if options["admin_password_file"] is not None:
        password = read_password(options["admin_password_file"])
        return FirstAdmin(username, email, password), Password.GIVEN
    if asks:
        password = click.prompt(
            f"Password of {username}", hide_input=True, confirmation_prompt=True
        )
        return FirstAdmin(username, email, password), Password.GIVEN
    password, is_new = store_password(folder)
    return FirstAdmin(username, email, password), Password.NEW if is_new else Password.STORED


@main.command("run")
@click.argument("component", type=click.Choice([component.value for component in Component]))
@folder_argument
@click.option(
    "--listen",
    default="",
    help="IPv4 address of this machine, for a standby manager on another machine than the Hub.",
)
def run(component: str, folder: Path, listen: str) -> None:
    """Run a component in the foreground; the units and containers use this.

    \b
    Examples:
        bai-hub run manager /etc/bai-hub
        bai-hub run manager /etc/bai-hub --listen 10.0.0.6
    """
    from .components import command, environment, internal_address
    from .folder import read_settings_file

    installation = read_settings_file(folder)
    chosen = Component(component)
    if listen and (chosen is not Component.MANAGER or not installation.managers):
        raise click.UsageError(
            "--listen is for a manager of an installation with the setting address.managers"
        )
    address = internal_address(installation)
    words = command(installation, chosen, address)
    os.chdir(installation.state)
    os.execve(words[0], words, environment(installation, folder, chosen, address, listen))


@main.command("check")
@folder_argument
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def check_command(folder: Path, as_json: bool) -> int:
    """Check the configuration: certificate, ports, databases, secrets, storage, engine, clock.

    Exit code 0: no errors (there may be warnings); 1: errors.

    \b
    Example:
        bai-hub check /etc/bai-hub --json
    """
    from bai_services.core.installation.findings import Level, worst

    from .checks import run_checks

    findings = run_checks(folder)
    if as_json:
        click.echo(json_text([finding.as_dict() for finding in findings], indent=1))
    else:
        for finding in findings:
            click.echo(f"{finding.level:<8} {finding.check}: {finding.message}")
            if finding.remedy:
                click.echo(f"{'':<9}remedy: {finding.remedy}")
    return failures.FAILED if worst(findings) is Level.ERROR else failures.SUCCESS


@main.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@folder_argument
@click.option("--folders", is_flag=True, help="Include the folders of all storage hosts.")
def backup(file: Path, folder: Path, folders: bool) -> None:
    """Write databases, secrets and settings to FILE, while the hub runs.

    The file has mode 0600, because it contains secrets; FILE.sha256 has its checksum. Without
    --folders, back up the storage hosts with their own tools.

    \b
    Example:
        bai-hub backup /backup/hub-monday.tar --folders
    """
    from .backup import back_up

    summary = back_up(folder, file.absolute(), includes_folders=folders)
    click.echo(f"{file}: revision {summary.revision}, SHA-256 {summary.sha256}")
    if summary.folders:
        click.echo(f"folders of: {', '.join(summary.folders)}")


def _paths_option(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    paths = {}
    for text in values:
        name, equals, path = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=/PATH")
        paths[name] = path
    return paths


@main.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@folder_argument
@click.option("--state", help="State folder. Default: the path of the backed-up folder.")
@click.option("--database", help="URL of an empty PostgreSQL database. Default: as in the backup.")
@click.option("--hub-database", help="URL of an empty PostgreSQL database for JupyterHub.")
@click.option("--database-password-file", help="File with the password of the databases.")
@click.option(
    "--storage",
    multiple=True,
    callback=_paths_option,
    help="Path of a storage host, NAME=/PATH; repeatable. Default: as in the backup.",
)
@click.option("--host", help="Name of the hub. Default: as in the backup.")
@click.option("--port", type=click.IntRange(1, 65535), help="Public port.")
@click.option("--internal-ports", type=click.IntRange(1024, 65000), help="First of five ports.")
def restore_command(
    file: Path,
    folder: Path,
    state: str | None,
    storage: dict[str, str],
    internal_ports: int | None,
    **options: Any,
) -> None:
    """Restore a backup to an empty folder, state folder and databases, also on another machine.

    Verifies checksums first. Does not overwrite anything. The old installation must be stopped if
    both use the same host name.

    \b
    Example:
        bai-hub restore /backup/hub-monday.tar /etc/bai-hub \\
            --database postgresql://bai@db2.example.org/bai
    """
    from .backup import Destination, restore

    values = {name: value for name, value in options.items() if value is not None}
    if internal_ports is not None:
        values["ports"] = Ports(*range(internal_ports, internal_ports + 5))
    destination = Destination(folder, state, storage, values)
    summary = restore(file.absolute(), destination)
    click.echo(f"restored the backup of {summary.created_at} to {folder}")
    click.echo(f"next: bai-hub check {folder}")


@main.command("bundle")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--wheel",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Wheel of bai-hub, as `make wheel` builds it.",
)
@click.option(
    "--extra",
    "extras",
    multiple=True,
    default=("hub", "agent", "gateway", "cli", "node"),
    show_default=True,
    help="Extra of the wheel; repeatable. The engine process also needs session.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    help="Image of the Docker engine, such as the session image; repeatable.",
)
def bundle(file: Path, wheel: Path, extras: Sequence[str], images: Sequence[str]) -> None:
    """Collect wheels and images in a tar file, for an installation without a network.

    The bundle is for machines with the same version of Python and the same architecture as this
    one. Its README.txt has the commands of the installation.

    \b
    Example:
        bai-hub bundle bai-hub.tar --wheel dist/bai_hub-0.1.0-py3-none-any.whl \\
            --image bai-session:latest
    """
    from .bundle import make_bundle

    made = make_bundle(file.absolute(), wheel, extras, images)
    click.echo(f"{file}: {made.wheels} wheels, {len(made.images)} images")
    click.echo(f"next: unpack it on the other machine, and see {made.folder}/README.txt")


@main.command("upgrade")
@folder_argument
@click.option("--check", is_flag=True, required=True, help="Only report; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def upgrade(folder: Path, check: bool, as_json: bool) -> int:
    """Report what the start of this version changes: migrations of the databases, and files.

    Exit code 0: nothing; 1: changes are pending.

    \b
    Example:
        bai-hub upgrade --check /etc/bai-hub
    """
    from dataclasses import asdict

    from .upgrade import pending_changes

    pending = pending_changes(folder)
    if as_json:
        content = {**asdict(pending), "is_up_to_date": pending.is_up_to_date}
        click.echo(json_text(content, indent=1))
    else:
        click.echo(f"bai-hub {pending.version}, JupyterHub {pending.jupyterhub}")
        if pending.is_newer_database:
            click.echo(f"The database (revision {pending.revision}) is from a later version.")
        for revision, text in pending.migrations:
            click.echo(f"migration {revision}: {text}")
        if pending.hub_database_is_old:
            click.echo("The Hub upgrades its own database when it starts.")
        for name in pending.outdated_files:
            click.echo(f"out of date: {folder / name}; run bai-hub init {folder}")
        for name in pending.changed_files:
            click.echo(f"changed by hand: {folder / name}")
        for name in pending.unsupported_agents:
            click.echo(f"agent {name} is too old for this version: upgrade its machine first")
        if pending.is_up_to_date:
            click.echo("Everything is up to date.")
    return failures.SUCCESS if pending.is_up_to_date else failures.FAILED
