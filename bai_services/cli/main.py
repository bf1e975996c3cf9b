"""The `bai` command: a table of commands, each loaded when it is called."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from bai_services import __version__

from . import failures


@dataclass(frozen=True, slots=True)
class Deferred:
    """Where a command lives; its module is imported only when somebody calls it."""

    module: str
    name: str
    summary: str


# A module brings httpx and rich with it: `bai --help` and completion must not wait for them.
COMMANDS: Mapping[str, Deferred] = {
    "login": Deferred("accounts.signing", "login", "Sign in at a hub and remember it."),
    "logout": Deferred("accounts.signing", "logout", "Withdraw the token; forget the hub."),
    "whoami": Deferred(
        "accounts.whoami", "whoami", "Show who is signed in, with limits and usage."
    ),
    "password": Deferred("accounts.signing", "password", "Change one's own password."),
    "session": Deferred("sessions.sessions", "session", "Start, watch and stop sessions."),
    "app": Deferred("apps.apps", "app", "Open an app or a port of a session on a local port."),
    "ssh": Deferred("apps.ssh", "ssh", "Sign in to a session, or run a command there."),
    "scp": Deferred("apps.ssh", "scp", "Copy files from and to sessions."),
    "ssh-config": Deferred("apps.ssh", "ssh_config", "Print what ssh needs to find sessions."),
    "ssh-key": Deferred("accounts.ssh_keys", "ssh_key", "Keep public keys to sign in to sessions."),
    "ssh-proxy": Deferred("apps.ssh", "ssh_proxy", "Be the ProxyCommand of ssh."),
    "completion": Deferred("completion", "completion", "Print the completion of a shell."),
    "template": Deferred("sessions.templates", "template", "Keep requests for sessions by name."),
    "vfolder": Deferred("folders.vfolders", "vfolder", "Keep, share and transfer files."),
    "image": Deferred("cluster.images", "image", "List the images that sessions can run."),
    "preset": Deferred("cluster.images", "preset", "List presets of resources for sessions."),
    "agent": Deferred("cluster.agents", "agent", "Look into the machines that run sessions."),
    "admin": Deferred("admin.commands", "admin", "Manage domains, people, policies and machines."),
    "apply": Deferred("admin.apply", "apply", "Bring the hub to what a YAML file describes."),
}


class Program(click.Group):
    """The root command: defers imports, and turns every failure into an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        deferred = COMMANDS.get(cmd_name)
        if deferred is None:
            return None
        module = importlib.import_module(f"{__package__}.{deferred.module}")
        command = getattr(module, deferred.name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click suggests from the commands that are loaded, and here none is.
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0].lower(), COMMANDS)
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, item.summary) for name, item in COMMANDS.items()])

    def main(  # type: ignore[override]  # the exit codes are ours in every mode
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **_: Any
    ) -> NoReturn:
        arguments = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in arguments
        try:
            _check_encoding(arguments)
            code = super().main(arguments, prog_name="bai", standalone_mode=False)
            sys.stdout.flush()
        except (click.Abort, KeyboardInterrupt):
            code = failures.INTERRUPTED
        except BrokenPipeError:
            # Nothing may be flushed into the closed pipe when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = failures.FAILED
        except Exception as error:
            if os.environ.get("BAI_DEBUG"):
                traceback.print_exc()
            failures.show(error, as_json=as_json)
            code = failures.exit_code(error)
        sys.exit(code if isinstance(code, int) else failures.DONE)


def _check_encoding(arguments: Sequence[str]) -> None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"the argument {argument!r} is not UTF-8") from None


@click.command(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 2 wrong use, 3 refused by a policy, 4 not found, "
    "5 not signed in or not allowed, 6 a part of the system is down, 1 anything else.",
)
@click.version_option(__version__, "--version", message="bai %(version)s")
def main() -> None:
    """Work with a bai-hub from the command line."""


if __name__ == "__main__":
    main()
