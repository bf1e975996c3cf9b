"""Options of `bai service` for autoscaling, and how a rule is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from bai_services.core.durations import format_duration, parse_duration
from bai_services.core.serving.scaling_replay import RULE_FIELDS
from bai_services.core.serving.settings import MAX_REPLICAS

_OPTIONS = ("min_replicas", "max_replicas", "target", "utilization")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def scaling_options(command: _Command) -> _Command:
    options = (
        click.option(
            "--min",
            "min_replicas",
            type=click.IntRange(0, MAX_REPLICAS),
            help="Autoscaling: fewest replicas; 0: none while nobody sends requests. Default: 1.",
        ),
        click.option(
            "--max",
            "max_replicas",
            type=click.IntRange(1, MAX_REPLICAS),
            help="Autoscaling: most replicas. Default: 1.",
        ),
        click.option(
            "--target",
            type=click.FloatRange(0.01, 1_000_000),
            help="Autoscaling: running and waiting requests per replica. Default: 10.",
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
    )
    for option in reversed(options):
        command = option(command)
    return command


def given_scaling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field ``scaling`` of a request; empty if no option of it is given."""
    rule = {name: options[name] for name in _OPTIONS}
    if options["idle"] is not None:
        rule["idle_seconds"] = parse_duration(options["idle"], "--idle")
    rule = {name: value for name, value in rule.items() if value is not None}
    return {"scaling": rule} if rule else {}


def rule_text(rule: Mapping[str, Any]) -> str:
    """Return a rule as `bai admin replay-scaling --rule` reads it."""
    shown = {
        name: format_duration(rule[field]) if field.endswith("_seconds") else f"{rule[field]:g}"
        for name, field in RULE_FIELDS.items()
    }
    return ",".join(f"{name}={value}" for name, value in shown.items())
