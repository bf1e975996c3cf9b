"""The files of a replay: which format a workload is in, its machines, and policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from bai_services.core.errors import InvalidRequest
from bai_services.core.scheduling.replay.history import read_history
from bai_services.core.scheduling.replay.measures import report
from bai_services.core.scheduling.replay.openb import read_nodes, read_pods
from bai_services.core.scheduling.replay.policies import ReplayPolicy
from bai_services.core.scheduling.replay.swf import read_swf
from bai_services.core.scheduling.replay.workload import Workload, refuse_broken

from .bounded_yaml import load_yaml

__all__ = ["read_policy", "read_workload", "refuse_broken", "report"]


def read_policy(path: Path) -> ReplayPolicy:
    """Return the policy of a YAML or JSON file, named as the file.

    Raises
    ------
    InvalidRequest
        If the file cannot be read, or is no policy.
    """
    try:
        document = load_yaml(_text(path))
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise InvalidRequest(f"policy {path.name} is neither YAML nor JSON: {where}") from None
    return ReplayPolicy.of(document, path.stem)


def read_workload(
    name: str, history: Mapping[str, Any] | None, nodes: Path | None, group: str | None
) -> Workload:
    """Return a workload with its machines; ``history`` stands for the file where there is one.

    Raises
    ------
    InvalidRequest
        If the file cannot be read, is in no known format, has nothing to replay, or no
        machines are known.
    """
    found = read_history(history, name, group) if history else _read(Path(name), group)
    if nodes is not None:
        agents, broken = read_nodes(_text(nodes).splitlines(keepends=True), nodes.name)
        found = replace(found, agents=tuple(agents), broken=(*found.broken, *broken))
    if not found.jobs and not found.broken:
        raise InvalidRequest(f"{name} has no session that ever ran: there is nothing to replay")
    if not found.agents and not found.broken:
        raise InvalidRequest(f"{name} names no machines; say which with --nodes CSV")
    return found


def _read(path: Path, group: str | None) -> Workload:
    text = _text(path)
    first = text.lstrip()[:1]
    if first in ("{", "["):
        try:
            return read_history(json.loads(text), path.name, group)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"{path.name} is not JSON: {error}") from None
    if group is not None:
        raise InvalidRequest("--resource-group belongs to a hub's history; this is no such file")
    if path.suffix.lower() == ".csv":
        return read_pods(text.splitlines(keepends=True), path.name)
    if path.suffix.lower() == ".swf" or first == ";" or first.isdigit():
        return read_swf(text.splitlines(), path.name)
    raise InvalidRequest(
        f"{path.name} is in no known format; a workload is an openb CSV (.csv), a file in the "
        "Standard Workload Format (.swf) or a hub's sessions as JSON"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path.name} is not UTF-8 text") from None
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}") from None
