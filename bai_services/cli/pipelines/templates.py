"""`bai pipeline template`: definitions from which pipelines are created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bai_services.core.errors import InvalidRequest
from bai_services.core.pipelines.parsing import MAX_BYTES

from .. import output
from ..command import (
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
)

_COLUMNS = ("name", "tasks", "owner", "project", "is_builtin", "description", "id")


@command_group()
def template() -> None:
    """Save definitions of pipelines as templates, and use templates of other users."""


@template.command("list", epilog=example("bai pipeline template list"))
@page_options
@json_option
@connected
async def list_(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the built-in templates, your own, and the templates of your projects."""
    page = await connection.client.get("/pipeline-templates", **page_query(sort, limit, offset))
    output.print_page(page, _COLUMNS, as_json=as_json, empty="no templates")


@template.command(epilog=example("bai pipeline template show compare-models > train.yaml"))
@click.argument("name")
@json_option
@connected
async def show(connection: Connection, name: str, *, as_json: bool) -> None:
    """Print the YAML of a template."""
    found = await connection.client.get(_path(name))
    if as_json:
        output.print_json(found)
    else:
        output.print_log(found["definition"])


@template.command(epilog=example("bai pipeline template save train.yaml"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--project", metavar="NAME", help="Project of the template.")
@click.option(
    "--project-owned", is_flag=True, help="The template belongs to the project; members see it."
)
@json_option
@connected
async def save(
    connection: Connection, file: Path, *, project: str | None, project_owned: bool, as_json: bool
) -> None:
    """Save a YAML file as a template. The template gets the name of the pipeline."""
    with file.open(encoding="utf-8", errors="replace") as stream:
        text = stream.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise InvalidRequest(f"{file.name} has more than {MAX_BYTES} characters")
    body: dict[str, Any] = {"definition": text} | ({"project": project} if project else {})
    if project_owned:
        body["is_project_owned"] = True
    made = await connection.client.post("/pipeline-templates", body)
    output.print_done(f"template {made['name']} saved", made, as_json=as_json)


@template.command(epilog=example("bai pipeline template delete train"))
@click.argument("name")
@json_option
@connected
async def delete(connection: Connection, name: str, *, as_json: bool) -> None:
    """Delete a template; pipelines that were created from it remain."""
    await connection.client.delete(_path(name))
    output.print_done(f"template {name} deleted", {"name": name}, as_json=as_json)


def _path(name: str) -> str:
    return f"/pipeline-templates/{segment(name)}"
