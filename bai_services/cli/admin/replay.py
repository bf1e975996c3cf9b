"""`bai admin replay`: a recorded workload through the scheduler, to try a policy before use."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import click

from bai_services.client import Client
from bai_services.core.errors import InvalidRequest

from .. import output, profile
from ..command import example, json_option

HUB = "hub"
# What of the report the table shows: the row's name, and the path to it.
ROWS = (
    ("jobs", ("jobs",)),
    ("started", ("started",)),
    ("never started", ("never_started",)),
    ("mean wait, s", ("wait_seconds", "mean")),
    ("median wait, s", ("wait_seconds", "median")),
    ("95 % waited at most, s", ("wait_seconds", "p95")),
    ("longest wait, s", ("wait_seconds", "max")),
    ("mean bounded slowdown", ("bounded_slowdown", "mean")),
    ("95 % slowed down at most", ("bounded_slowdown", "p95")),
    ("fragmentation, %", ("fragmentation_percent", "mean")),
    ("users", ("fairness", "users")),
    ("fairness between users (1 is best)", ("fairness", "jain_index")),
    ("slowdown of the worst-off user", ("fairness", "worst_user_slowdown")),
    ("from first arrival to last end, s", ("makespan_seconds",)),
)


@click.command(
    epilog=example(
        "bai admin replay --workload hub --policy policy.yaml",
        "bai admin replay --workload pods.csv --nodes nodes.csv --policy drf.yaml --plots plots",
    )
)
@click.option(
    "--workload", metavar="FILE", required=True,
    help="openb CSV, SWF or a hub's sessions as JSON; 'hub': the history of the hub signed in to.",
)  # fmt: skip
@click.option(
    "--nodes", metavar="CSV", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The machines, as an openb node list; needed where the workload names none.",
)  # fmt: skip
@click.option(
    "--policy", "policies", metavar="FILE", required=True, multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML or JSON with scheduler and scheduler_opts. May be repeated, to compare.",
)  # fmt: skip
@click.option("--resource-group", metavar="NAME", help="Of a hub's history: only this one.")
@click.option("--skip-broken", is_flag=True, help="Leave broken rows out instead of refusing.")
@click.option(
    "--plots", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Write plots there, as SVG.",
)  # fmt: skip
@json_option
def replay(
    *,
    workload: str,
    nodes: Path | None,
    policies: tuple[Path, ...],
    resource_group: str | None,
    skip_broken: bool,
    plots: Path | None,
    as_json: bool,
) -> None:
    """Play a recorded workload through the scheduler in simulated time.

    Nothing is changed anywhere: it tells how long sessions would have waited, what
    of the machines would have been used, and how fairly.
    """
    runs = _part("replay_runs")
    draws = _part("replay_plots") if plots else None
    chosen = [runs.read_policy(path) for path in policies]
    _check_names(chosen)
    history = asyncio.run(_history()) if workload == HUB else None
    found = runs.read_workload(workload, history, nodes, resource_group)
    if not skip_broken:
        runs.refuse_broken(found.broken)
    replays = {policy.name: policy.replay(found.jobs, found.agents) for policy in chosen}
    reports = {name: runs.report(replayed) for name, replayed in replays.items()}
    written = draws.write(replays, plots) if draws else []
    document = {
        "workload": workload,
        "agents": len(found.agents),
        "broken_rows": [str(row) for row in found.broken],
        "left_out": found.left_out or {},
        "policies": reports,
        "plots": [str(path) for path in written],
    }
    if as_json:
        output.print_json(document)
    else:
        _print(document)


def _part(name: str) -> Any:
    """Return a module that needs what only the extra ``replay`` brings."""
    try:
        return importlib.import_module(f"{__package__}.{name}")
    except ModuleNotFoundError as error:
        raise click.UsageError(
            f"bai admin replay needs {str(error.name).partition('.')[0]}; install it with: "
            "pip install 'bai-hub[replay]'"
        ) from None


def _check_names(policies: list[Any]) -> None:
    names = [policy.name for policy in policies]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(
            f"two policy files are named {twice[0]}; the report goes by their names: rename one"
        )


async def _history() -> dict[str, Any]:
    """Return the history of the hub in force: its sessions and agents."""
    current = profile.load()
    async with Client(current.service_url, current.credential) as client:
        return {
            "sessions": [item async for item in client.items("/sessions")],
            "agents": [item async for item in client.items("/agents")],
        }


def _print(document: dict[str, Any]) -> None:
    reports = document["policies"]
    rows = [
        {"measure": name, **{policy: _at(reports[policy], path) for policy in reports}}
        for name, path in ROWS
    ]
    used = sorted({name for found in reports.values() for name in found["utilisation_percent"]})
    for name in used:
        of_each = {p: _at(reports[p], ("utilisation_percent", name)) for p in reports}
        rows.insert(-1, {"measure": f"{name} in use, %", **of_each})
    output.print_table(rows, ("measure", *reports))
    for reason, count in document["left_out"].items():
        output.note(f"{count} left out: {reason}")
    if document["broken_rows"]:
        output.note(f"{len(document['broken_rows'])} broken rows left out")
    for path in document["plots"]:
        output.note(f"written: {path}")


def _at(report: dict[str, Any], path: tuple[str, ...]) -> str:
    value: Any = report
    for key in path:
        value = value.get(key, 0)
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)
