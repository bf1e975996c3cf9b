"""Entry point of `bai`: a table of commands whose modules are imported on first use."""

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
class DeferredCommand:
    """Location of a command whose module is imported when the command is used."""

    module: str
    name: str
    summary: str


# These modules import httpx and rich, which is slow; `bai --help` and completion do not need them.
COMMANDS: Mapping[str, DeferredCommand] = {
    "login": DeferredCommand("accounts.sign_in", "login", "Sign in to a hub."),
    "logout": DeferredCommand(
        "accounts.sign_in", "logout", "Sign out: revoke and delete the token."
    ),
    "whoami": DeferredCommand("accounts.whoami", "whoami", "Show your account, limits and usage."),
    "password": DeferredCommand("accounts.sign_in", "password", "Change your password."),
    "full-name": DeferredCommand("accounts.whoami", "full_name", "Change your full name."),
    "session": DeferredCommand("sessions.sessions", "session", "Create, watch and stop sessions."),
    "app": DeferredCommand(
        "apps.apps", "app", "Forward a local port to an app or port of a session."
    ),
    "ssh": DeferredCommand("apps.ssh", "ssh", "Open a shell in a session, or run a command there."),
    "scp": DeferredCommand("apps.ssh", "scp", "Copy files from and to sessions."),
    "ssh-config": DeferredCommand(
        "apps.ssh", "ssh_config", "Print an ssh_config section for sessions."
    ),
    "ssh-key": DeferredCommand("accounts.ssh_keys", "ssh_key", "Manage your public SSH keys."),
    "sign-in": DeferredCommand(
        "accounts.browser_sign_ins", "sign_in", "Manage the browsers in which you are signed in."
    ),
    "ssh-proxy": DeferredCommand("apps.ssh", "ssh_proxy", "Serve as the ProxyCommand of ssh."),
    "env": DeferredCommand("sessions.setup", "env", "Manage variables and secrets of sessions."),
    "dotfile": DeferredCommand("sessions.setup", "dotfile", "Manage the dotfiles of sessions."),
    "bootstrap": DeferredCommand(
        "sessions.setup", "bootstrap", "Manage the bootstrap script of sessions."
    ),
    "completion": DeferredCommand("completion", "completion", "Print a shell completion script."),
    "template": DeferredCommand(
        "sessions.templates", "template", "Store session specs under a name."
    ),
    "schedule": DeferredCommand(
        "sessions.schedules", "schedule", "Start and stop sessions at set times."
    ),
    "service": DeferredCommand("serving.services", "service", "Serve models with endpoints."),
    "chat": DeferredCommand("serving.chats", "chat", "Read your chats with endpoints."),
    "model": DeferredCommand("models.models", "model", "Use, deploy and import models."),
    "pipeline": DeferredCommand(
        "pipelines.pipelines", "pipeline", "Define and run pipelines of batch sessions."
    ),
    "vfolder": DeferredCommand("folders.vfolders", "vfolder", "Store, share and transfer files."),
    "import": DeferredCommand(
        "imports.imports", "import_", "Import a repository, an archive or a file into a folder."
    ),
    "imports": DeferredCommand(
        "imports.imports", "imports", "List and cancel imports into folders."
    ),
    "image": DeferredCommand("cluster.images", "image", "List the images that sessions can run."),
    "custom-image": DeferredCommand(
        "cluster.custom_images", "custom_image", "Manage the images that you made from sessions."
    ),
    "preset": DeferredCommand(
        "cluster.images", "preset", "List the resource presets for sessions."
    ),
    "agent": DeferredCommand("cluster.agents", "agent", "Show agents and their accelerators."),
    "usage": DeferredCommand("usage.reports", "usage", "Report your usage of resources."),
    "budget": DeferredCommand("usage.budgets", "budget", "Show the budgets of your projects."),
    "announcements": DeferredCommand(
        "operations.announcements", "announcements", "Show the announcements of administrators."
    ),
    "reservation": DeferredCommand(
        "cluster.reservations", "reservation", "Reserve machines for a project and a period."
    ),
    "notification": DeferredCommand(
        "notifications.notifications",
        "notification",
        "Read notifications, and choose how you receive them.",
    ),
    "audit": DeferredCommand(
        "accounts.audit", "audit", "List the actions of others on your sessions and folders."
    ),
    "admin": DeferredCommand(
        "admin.commands", "admin", "Manage domains, users, policies and agents."
    ),
    "apply": DeferredCommand("admin.apply", "apply", "Apply a YAML file to the hub."),
}


class RootGroup(click.Group):
    """Root command: import subcommands on first use and map every failure to an exit code."""

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
        # click suggests only commands that are loaded; here, none is loaded yet.
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0].lower(), COMMANDS)
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, item.summary) for name, item in COMMANDS.items()])

    def main(  # type: ignore[override]  # no standalone_mode: this method maps the exit codes
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
            # Otherwise, the interpreter would fail at exit when it flushes the closed pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = failures.FAILED
        except Exception as error:
            if os.environ.get("BAI_DEBUG"):
                traceback.print_exc()
            failures.show(error, as_json=as_json)
            code = failures.exit_code(error)
        sys.exit(code if isinstance(code, int) else failures.SUCCESS)


def _check_encoding(arguments: Sequence[str]) -> None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"argument {argument!r} is not valid UTF-8") from None


@click.command(
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success, 2 usage error, 3 denied by a policy, 4 not found, "
    "5 not signed in or not allowed, 6 a component is unavailable, 130 interrupted by Ctrl-C, "
    "1 any other failure.",
)
@click.version_option(__version__, "--version", message="bai %(version)s")
def main() -> None:
    """Command line of bai-hub."""


if __name__ == "__main__":
    main()
