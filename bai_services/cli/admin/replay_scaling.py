"""`bai admin replay-scaling`: simulate an autoscaling rule with recorded arrivals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from bai_services.core.errors import InvalidRequest
from bai_services.core.serving.scaling_replay import (
    Fleet,
    parse_scaling_rule,
    read_arrivals,
    replay_scaling,
)

from .. import output
from ..command import example, json_option

MAX_FILE_BYTES = 64 * 2**20
ROWS = (
    ("requests", "requests"),
    ("cold starts", "cold_starts"),
    ("started replicas", "starts"),
    ("maximum replicas", "max_replicas"),
    ("mean wait, s", "mean_wait_seconds"),
    ("99th percentile wait, s", "p99_wait_seconds"),
    ("GPU hours", "gpu_hours"),
)


@click.command(
    epilog=example(
        "bai admin replay-scaling arrivals.csv --rule min=0,max=8,target=4",
        "bai admin replay-scaling arrivals.jsonl --rule max=8,target=4,idle=10min --startup 90",
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--rule", metavar="RULE", required=True,
    help="Rule: min, max (replicas), target (requests of one replica), utilization, stable, "
    "panic and idle (durations); for example min=0,max=8,target=4,idle=5min.",
)  # fmt: skip
@click.option(
    "--startup", metavar="SECONDS", type=click.FloatRange(0, 86400), default=60.0,
    show_default=True, help="Time until a new replica serves requests.",
)  # fmt: skip
@click.option(
    "--concurrency", metavar="N", type=click.IntRange(1, 100_000),
    help="Requests that a replica serves at the same time. Default: the target of the rule.",
)  # fmt: skip
@click.option(
    "--gpus", metavar="N", type=click.FloatRange(0, 1024), default=1.0, show_default=True,
    help="GPUs of a replica.",
)  # fmt: skip
@json_option
def replay_scaling_command(
    *, file: Path, rule: str, startup: float, concurrency: int | None, gpus: float, as_json: bool
) -> None:
    """Replay recorded arrivals through an autoscaling rule in simulated time.

    FILE is CSV with the columns at and seconds (arrival and duration of each request), or has one
    JSON object with these fields in each line. The command changes nothing on the hub. The result
    is compared with the same rule without a panic window, and with a fixed fleet.
    """
    parsed = parse_scaling_rule(rule)
    fleet = Fleet(startup, concurrency or max(1, round(parsed.target)), gpus)
    reports = replay_scaling(read_arrivals(_text(file), file.name), parsed, fleet)
    if as_json:
        output.print_json({name: asdict(report) for name, report in reports.items()})
        return
    rows = [
        {"measure": label, **{name: f"{getattr(report, field):g}" for name, report in
         reports.items()}}
        for label, field in ROWS
    ]  # fmt: skip
    output.print_table(rows, ("measure", *reports))


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidRequest(f"{path.name} is larger than {MAX_FILE_BYTES // 2**20} MiB")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path.name} is not UTF-8 text") from None
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}") from None
