"""`bai completion`: shell completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .command import Choice, example

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=example(
        'eval "$(bai completion bash)"', "bai completion fish > ~/.config/fish/completions/bai.fish"
    )
)
@click.argument("shell", type=Choice(SHELLS))
def completion(*, shell: str) -> None:
    """Print the completion script for SHELL."""
    root = click.get_current_context().find_root().command
    completion_class = get_completion_class(shell)
    assert completion_class is not None  # click supports these shells
    click.echo(completion_class(root, {}, "bai", "_BAI_COMPLETE").source())
