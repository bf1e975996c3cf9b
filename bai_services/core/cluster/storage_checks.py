"""Checks of the storage hosts on the machines of agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .joining import StoragePath

MARKER_FILE = ".bai-storage-host"
"""File in the directory of a storage host; its content is different on each file system."""


class StorageProblem(StrEnum):
    """Why a storage host does not work on a machine."""

    NOT_CHECKED = "not-checked"  # the agent has not checked it yet
    NOT_MOUNTED = "not-mounted"  # its directory does not exist, or is on another file system
    READ_ONLY = "read-only"
    FAILING = "failing"  # the file system returns errors
    NOT_RESPONDING = "not-responding"


@dataclass(frozen=True, slots=True)
class StorageCheck(StoragePath):
    """A storage host to check; ``marker``: the content of its ``MARKER_FILE``, "" if unknown."""

    marker: str = ""

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> StorageCheck:
        return cls(str(item["name"]), str(item["path"]), str(item.get("marker") or ""))


def storage_problems(
    hosts: Iterable[str], reported: Mapping[str, str] | None
) -> dict[str, StorageProblem]:
    """Return the problems of those ``hosts`` that do not work on the machine of an agent.

    ``reported`` maps the checked hosts to their problem, "" if there is none. An agent of an
    earlier version checks no hosts; ``reported`` is then None, and all hosts count as working.
    """
    if reported is None:
        return {}
    found = {host: _problem(reported.get(host)) for host in hosts}
    return {host: problem for host, problem in found.items() if problem is not None}


def _problem(reported: str | None) -> StorageProblem | None:
    if reported is None:
        return StorageProblem.NOT_CHECKED
    if reported == "":
        return None
    # An unknown problem counts as FAILING, because a later version of the agent may report other
    # problems.
    known = reported in set(StorageProblem)
    return StorageProblem(reported) if known else StorageProblem.FAILING
