"""Reference of the command line as Markdown, from the click commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from markdown_text import escape, table

from bai_services.cli.main import main


def cli_reference() -> str:
    """Return a section for each command; commands of a group are subsections of the group."""
    return "\n".join(_group(main, click.Context(main, info_name="bai"), depth=2))


def _group(group: click.Group, context: click.Context, depth: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = click.Context(command, info_name=name, parent=context)
        yield f"\n{'#' * min(depth, 4)} `{below.command_path}`\n"
        yield from _help(command)
        if isinstance(command, click.Group):
            yield from _group(command, below, depth + 1)
        else:
            yield from _usage(command, below)


def _help(command: click.Command) -> Iterator[str]:
    text = inspect.cleandoc(command.help or "").split("\f")[0]
    yield from _paragraphs(text)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        # Examples: click does not rewrap a paragraph that starts with \b.
        if lines and lines[0].strip() == "\b":
            title = [lines.pop(1), ""] if lines[1:2] and lines[1].endswith(":") else []
            yield from ("", *title, "```text", *(line.strip() for line in lines[1:]), "```", "")
        else:
            yield from (escape(paragraph), "")


def _usage(command: click.Command, context: click.Context) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{context.command_path} {pieces}", "```")
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1] and "--help" not in record[0]:
            rows.append((f"`{record[0].replace('|', chr(92) + '|')}`", escape(record[1])))
    yield from table(("option", "meaning"), rows)
    yield from _paragraphs(inspect.cleandoc(command.epilog or ""))
