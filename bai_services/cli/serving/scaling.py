"""Options of `bai service` for autoscaling, and the text form of a rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from bai_services.core.duration_text import format_duration
from bai_services.core.durations import parse_duration
from bai_services.core.errors import InvalidRequest
from bai_services.core.serving.autoscaling import Measure
from bai_services.core.serving.scaling_replay import RULE_FIELDS
from bai_services.core.serving.settings import MAX_REPLICAS

from ..command import Choice, with_options

_OPTIONS = (
    "min_replicas", "max_replicas", "measure", "metric", "query", "target", "utilization",
)  # fmt: skip
_PERIOD = re.compile(r"(\S+) ([0-9:]+)-([0-9:]+)(?: (\S+))? ([0-9]+)-([0-9]+)")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def scaling_options(command: _Command) -> _Command:
    options = (
        click.option(
            "--min",
            "min_replicas",
            type=click.IntRange(0, MAX_REPLICAS),
            help="Autoscaling: minimum number of replicas; 0: no replicas while idle. Default: 1.",
        ),
        click.option(
            "--max",
            "max_replicas",
            type=click.IntRange(1, MAX_REPLICAS),
            help="Autoscaling: maximum number of replicas. Default: 1.",
        ),
        click.option(
            "--measure",
            type=Choice([each.value for each in Measure]),
            help="Autoscaling: measure of the load. Default: requests (running and waiting).",
        ),
        click.option(
            "--metric",
            metavar="NAME",
            help="Autoscaling: metric of the runtime, for the measures metric-total and "
            "metric-mean; see `bai service variants --json`.",
        ),
        click.option(
            "--query",
            metavar="PROMQL",
            help="Autoscaling: Prometheus query, for the measure query.",
        ),
        click.option(
            "--target",
            type=click.FloatRange(0.01, 1_000_000),
            help="Autoscaling: load per replica; cpu: percent. Default: 10.",
        ),
        click.option(
            "--utilization",
            type=click.FloatRange(0.05, 1),
            help="Autoscaling: used share of the target. Default: 0.7.",
        ),
        click.option(
            "--idle",
            metavar="DURATION",
            help="Autoscaling: time without requests until the last replica ends. Default: 5min.",
        ),
        click.option(
            "--period",
            "periods",
            multiple=True,
            metavar="PERIOD",
            help="Autoscaling: other bounds at times of the week, such as "
            "'mon-fri 08:00-20:00 Asia/Seoul 2-6'; '' for none. Repeat it for several periods.",
        ),
    )
    return with_options(command, *options)


def given_scaling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field ``scaling`` of a request; empty if no option of it is given."""
    rule = {name: options[name] for name in _OPTIONS}
    if options["idle"] is not None:
        rule["idle_seconds"] = parse_duration(options["idle"], "--idle")
    rule = {name: value for name, value in rule.items() if value is not None}
    if options["periods"]:
        rule["schedule"] = [_period(text) for text in options["periods"] if text]
    return {"scaling": rule} if rule else {}


def _period(text: str) -> dict[str, Any]:
    found = _PERIOD.fullmatch(text)
    if found is None:
        raise InvalidRequest(
            f"--period: {text!r} is not DAYS START-END [TIME-ZONE] MIN-MAX, such as "
            "'mon-fri 08:00-20:00 Asia/Seoul 2-6'"
        )
    days, starts, ends, zone, low, high = found.groups()
    period = {"days": days, "starts": starts, "ends": ends}
    return {**period, "zone": zone or "UTC", "min_replicas": int(low), "max_replicas": int(high)}


def measure_text(rule: Mapping[str, Any]) -> str:
    """Return a description of the load of a rule."""
    return " ".join(part for part in (rule["measure"], rule["metric"], rule["query"]) if part)


def schedule_text(rule: Mapping[str, Any]) -> str:
    """Return the periods of a rule in the format of the option `--period`."""
    return ", ".join(
        "{days} {starts}-{ends} {zone} {min_replicas}-{max_replicas}".format_map(period)
        for period in rule["schedule"]
    )


def rule_text(rule: Mapping[str, Any]) -> str:
    """Return a rule in the format of `bai admin replay-scaling --rule`."""
    shown = {
        name: format_duration(rule[field]) if field.endswith("_seconds") else f"{rule[field]:g}"
        for name, field in RULE_FIELDS.items()
    }
    return ",".join(f"{name}={value}" for name, value in shown.items())
