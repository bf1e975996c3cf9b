"""`bai admin replay`: simulate a scheduling policy with a recorded workload."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import click

from bai_services.client import Client
from bai_services.core.counts import counted
from bai_services.core.errors import InvalidRequest
from bai_services.core.scheduling.replay.workload import reject_invalid_rows

from .. import output, profile
from ..command import example, json_option

HUB = "hub"
# Rows of the table: label, and path of the value in the report.
ROWS = (
    ("jobs", ("jobs",)),
    ("started", ("started",)),
    ("never started", ("never_started",)),
    ("mean wait, s", ("wait_seconds", "mean")),
    ("median wait, s", ("wait_seconds", "median")),
    ("95th percentile wait, s", ("wait_seconds", "p95")),
    ("maximum wait, s", ("wait_seconds", "max")),
    ("mean bounded slowdown", ("bounded_slowdown", "mean")),
    ("95th percentile bounded slowdown", ("bounded_slowdown", "p95")),
    ("fragmentation, %", ("fragmentation_percent", "mean")),
    ("users", ("fairness", "users")),
    ("fairness between users (1 is best)", ("fairness", "jain_index")),
    ("mean slowdown of the worst-off user", ("fairness", "worst_user_slowdown")),
    ("makespan, s", ("makespan_seconds",)),
)


@click.command(
    epilog=example(
        "bai admin replay --workload hub --policy policy.yaml",
        "bai admin replay --workload pods.csv --nodes nodes.csv --policy drf.yaml --plots plots",
    )
)
@click.option(
    "--workload", metavar="FILE", required=True,
    help="File in openb CSV, SWF or JSON format, or 'hub' for the session history of the hub "
    "that you are signed in to.",
)  # fmt: skip
@click.option(
    "--nodes", metavar="CSV", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="List of machines (openb node list). Required if the workload lists no machines.",
)  # fmt: skip
@click.option(
    "--policy", "policies", metavar="FILE", required=True, multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML or JSON file with scheduler and scheduler_opts. May be repeated, to compare.",
)  # fmt: skip
@click.option(
    "--resource-group", metavar="NAME",
    help="Replay only this resource group of a hub's session history.",
)  # fmt: skip
@click.option(
    "--skip-broken",
    is_flag=True,
    help="Skip invalid rows of the workload instead of failing.",
)
@click.option(
    "--plots", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Write plots to this directory as SVG files.",
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
    """Replay a recorded workload through the scheduler in simulated time.

    The command changes nothing on the hub. It reports waiting times, utilization of the
    machines and fairness between users.
    """
    replay_input = _import_extra(f"{__package__}.replay_input")
    measures = _import_extra("bai_services.core.scheduling.replay.measures")
    plotting = _import_extra(f"{__package__}.replay_plots") if plots else None
    chosen = [replay_input.read_policy(path) for path in policies]
    _check_names(chosen)
    source = asyncio.run(_history()) if workload == HUB else Path(workload)
    recorded = replay_input.read_workload(source, workload, nodes, resource_group)
    if not skip_broken:
        reject_invalid_rows(recorded.invalid_rows)
    replay_input.check_complete(recorded, workload)
    replays = {policy.name: policy.replay(recorded.jobs, recorded.agents) for policy in chosen}
    reports = {name: measures.report(replayed) for name, replayed in replays.items()}
    written = plotting.write(replays, plots) if plotting else []
    document = {
        "workload": workload,
        "agents": len(recorded.agents),
        "broken_rows": [str(row) for row in recorded.invalid_rows],
        "left_out": recorded.skipped or {},
        "policies": reports,
        "plots": [str(path) for path in written],
    }
    if as_json:
        output.print_json(document)
    else:
        _print(document)


def _import_extra(name: str) -> Any:
    """Import and return a module that depends on packages of the extra ``replay``."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise click.UsageError(
            f"bai admin replay needs {str(error.name).partition('.')[0]}; install it with: "
            "pip install 'bai-hub[replay]'"
        ) from None


def _check_names(policies: list[Any]) -> None:
    names = [policy.name for policy in policies]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise InvalidRequest(
            f"two policy files are named {duplicates[0]}; rename one, because the report uses "
            "file names as column titles"
        )


async def _history() -> dict[str, Any]:
    """Return the sessions and agents of the hub that the user is signed in to."""
    current = profile.load()
    async with Client(current.service_url, current.credential) as client:
        return {
            "sessions": [item async for item in client.items("/sessions")],
            "agents": [item async for item in client.items("/agents")],
        }


def _print(document: dict[str, Any]) -> None:
    reports = document["policies"]
    rows = [
        {"measure": name, **{policy: _value_at(reports[policy], path) for policy in reports}}
        for name, path in ROWS
    ]
    used = sorted({name for report in reports.values() for name in report["utilization_percent"]})
    for name in used:
        by_policy = {p: _value_at(reports[p], ("utilization_percent", name)) for p in reports}
        rows.insert(-1, {"measure": f"{name} utilization, %", **by_policy})
    output.print_table(rows, ("measure", *reports))
    for reason, count in document["left_out"].items():
        output.note(f"{count} skipped: {reason}")
    if document["broken_rows"]:
        output.note(f"{counted(len(document['broken_rows']), 'invalid rows')} skipped")
    for path in document["plots"]:
        output.note(f"plot written to {path}")


def _value_at(report: dict[str, Any], path: tuple[str, ...]) -> str:
    value: Any = report
    for key in path:
        value = value.get(key, 0)
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)
