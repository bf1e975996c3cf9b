"""`bai template`: session specs stored under a name."""

from __future__ import annotations

from typing import Any

import click
import yaml

from bai_services.core.bounded_yaml import load_yaml
from bai_services.core.errors import InvalidRequest

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

COLUMNS = ("name", "audience", "owner", "project", "description", "changed_at")


@command_group()
def template() -> None:
    """Store session specs under a name and create sessions from them."""


@template.command(
    epilog=example("bai template create train train.yaml --description 'Nightly training'")
)
@click.argument("name")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--description", metavar="TEXT", help="Purpose of the template.")
@click.option(
    "--project",
    metavar="NAME",
    help="Make the template available to all members of this project (administrators only).",
)
@click.option(
    "--domain",
    "for_domain",
    is_flag=True,
    help="Make the template available to all users of your domain (administrators only).",
)
@click.option("--replace", is_flag=True, help="Replace an existing template of this name.")
@json_option
@connected
async def create(
    connection: Connection,
    name: str,
    file: Any,
    *,
    description: str | None,
    project: str | None,
    for_domain: bool,
    replace: bool,
    as_json: bool,
) -> None:
    """Save the spec in FILE (YAML or JSON, - for standard input) as a template.

    A spec has the fields of a session in the REST API. Options of `bai session create`
    override it.
    """
    if project and for_domain:
        raise click.UsageError("--project and --domain are mutually exclusive")
    body: dict[str, Any] = {"name": name, "request": _request(file)}
    if description is not None:
        body["description"] = description
    if replace:
        done = await connection.client.patch(f"/session-templates/{segment(name)}", body)
    else:
        if project:
            body |= {"audience": "project", "project": project}
        elif for_domain:
            body["audience"] = "domain"
        done = await connection.client.post("/session-templates", body)
    text = f"template {name} saved; it is available to its {done['audience']}"
    output.print_done(text, done, as_json=as_json)


@template.command("ls", epilog=example("bai template ls"))
@page_options
@json_option
@connected
async def list_(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the templates that you may use."""
    page = await connection.client.get("/session-templates", **page_query(sort, limit, offset))
    output.print_page(
        page,
        COLUMNS,
        as_json=as_json,
        empty="no templates yet; create one: bai template create NAME FILE",
    )


@template.command(epilog=example("bai template info train"))
@click.argument("name")
@json_option
@connected
async def info(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show a template with its spec."""
    template = await connection.client.get(f"/session-templates/{segment(name)}")
    output.print_fields(template, as_json=as_json)


@template.command(epilog=example("bai template rm train"))
@click.argument("name")
@json_option
@connected
async def rm(connection: Connection, name: str, *, as_json: bool) -> None:
    """Delete a template; sessions created from it are not affected."""
    await connection.client.delete(f"/session-templates/{segment(name)}")
    output.print_done(f"template {name} deleted", {"name": name}, as_json=as_json)


def _request(file: Any) -> dict[str, Any]:
    try:
        request = load_yaml(file)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file.name} cannot be read: {error}") from error
    if not isinstance(request, dict):
        raise InvalidRequest(f"{file.name} must contain one mapping with the fields of a session")
    return request
