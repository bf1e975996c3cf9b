"""Read the input files of a replay: workload (format detected), machines and policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from bai_services.core.bounded_yaml import load_yaml
from bai_services.core.counts import counted
from bai_services.core.errors import InvalidRequest
from bai_services.core.scheduling.replay.history import read_history
from bai_services.core.scheduling.replay.openb import read_nodes, read_pods
from bai_services.core.scheduling.replay.policies import ReplayPolicy
from bai_services.core.scheduling.replay.swf import read_swf
from bai_services.core.scheduling.replay.workload import Workload


def read_policy(path: Path) -> ReplayPolicy:
    """Return the policy in a YAML or JSON file; its name is the file's name without the suffix.

    Raises
    ------
    InvalidRequest
        If the file cannot be read, or is not a valid policy.
    """
    try:
        document = load_yaml(_text(path))
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise InvalidRequest(f"policy {path.name} is neither YAML nor JSON: {problem}") from None
    return ReplayPolicy.of(document, path.stem)


def read_workload(
    source: Path | Mapping[str, Any], name: str, nodes: Path | None, group: str | None
) -> Workload:
    """Return the workload in a file or in the history of a hub, with its machines.

    ``name`` appears in error messages. ``nodes`` is a file whose machines replace those of the
    workload. ``group`` selects one resource group of a history. If ``nodes`` or ``group`` is None,
    it has no effect.

    Raises
    ------
    InvalidRequest
        If a file cannot be read or has an unknown format.
    """
    if isinstance(source, Path):
        workload = _read_file(source, group)
    else:
        workload = read_history(source, name, group)
    if nodes is not None:
        agents, invalid_rows = read_nodes(_text(nodes).splitlines(keepends=True), nodes.name)
        invalid_rows = [*workload.invalid_rows, *invalid_rows]
        workload = replace(workload, agents=tuple(agents), invalid_rows=tuple(invalid_rows))
    return workload


def check_complete(workload: Workload, name: str) -> None:
    """Raise ``InvalidRequest`` if a workload has no valid session or no valid machine."""
    rows = workload.invalid_rows
    skipped = f"; {counted(len(rows), 'invalid rows')}, the first: {rows[0]}" if rows else ""
    if not workload.jobs:
        raise InvalidRequest(f"{name} contains no session that ran; nothing to replay{skipped}")
    if not workload.agents:
        raise InvalidRequest(f"{name} lists no machines; pass --nodes CSV{skipped}")


def _read_file(path: Path, group: str | None) -> Workload:
    text = _text(path)
    first = text.lstrip()[:1]
    if first in ("{", "["):
        try:
            return read_history(json.loads(text), path.name, group)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"{path.name} is not valid JSON: {error}") from None
    if group is not None:
        raise InvalidRequest("--resource-group applies only to a hub's session history (JSON)")
    if path.suffix.lower() == ".csv":
        return read_pods(text.splitlines(keepends=True), path.name)
    if path.suffix.lower() == ".swf" or first == ";" or first.isdigit():
        return read_swf(text.splitlines(), path.name)
    raise InvalidRequest(
        f"{path.name} has an unknown format; a workload is an openb CSV file (.csv), a file in "
        "the Standard Workload Format (.swf) or a hub's session history as JSON"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path.name} is not UTF-8 text") from None
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}") from None
