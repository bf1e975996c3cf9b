"""Repeated checks that the file systems of the storage hosts work on this machine."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bai_services.core.cluster.storage_checks import MARKER_FILE, StorageCheck, StorageProblem
from bai_services.system.bounded_calls import BoundedCalls

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
# A file system that needs more time counts as not working.
TIMEOUT_SECONDS = 4.0


def storage_problem(path: Path, marker_file: str, marker: str) -> StorageProblem | None:
    """Return why a file system does not work here, None if it works.

    It is recognized by the content of ``marker_file``; ``marker`` is "" if that is unknown.

    Raises
    ------
    OSError
        If the file system returns an error.
    """
    try:
        flags = os.statvfs(path).f_flag
        if marker and (path / marker_file).read_text(errors="replace").strip() != marker:
            return StorageProblem.NOT_MOUNTED
    except (FileNotFoundError, NotADirectoryError):
        return StorageProblem.NOT_MOUNTED
    return StorageProblem.READ_ONLY if flags & os.ST_RDONLY else None


class StorageWatch:
    """Checks the storage hosts that the manager names.

    A check that hangs is reported, and does not delay anything else.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        """``on_change`` is called when the state of a host has changed."""
        self._on_change = on_change
        self._hosts: Sequence[StorageCheck] = ()
        self._states: Mapping[str, str] = {}
        self._calls: BoundedCalls[StorageProblem | None] = BoundedCalls()
        self._has_new_hosts = asyncio.Event()

    def states(self) -> dict[str, str]:
        """Return the problem of each checked storage host, "" if it works."""
        return dict(self._states)

    def set_hosts(self, hosts: Sequence[StorageCheck]) -> None:
        """Set the hosts to check; changed hosts are checked at once."""
        if hosts != self._hosts:
            self._hosts = hosts
            self._has_new_hosts.set()

    async def run(self) -> None:
        """Check the hosts at intervals; never returns."""
        while True:
            self._has_new_hosts.clear()
            hosts = self._hosts
            states = await asyncio.to_thread(self._check, hosts)
            if states != self._states:
                _log_changes(self._states, states)
                self._states = states
                self._on_change()
            try:
                await asyncio.wait_for(self._has_new_hosts.wait(), INTERVAL_SECONDS)
            except TimeoutError:
                continue

    def _check(self, hosts: Sequence[StorageCheck]) -> dict[str, str]:
        calls = {
            host.name: partial(storage_problem, Path(host.path), MARKER_FILE, host.marker)
            for host in hosts
        }
        results = self._calls.run(calls, TIMEOUT_SECONDS)
        return {host.name: _state(results.get(host.name, TimeoutError())) for host in hosts}


def _state(result: StorageProblem | Exception | None) -> str:
    if result is None:
        return ""
    if isinstance(result, StorageProblem):
        return result
    if isinstance(result, TimeoutError) or getattr(result, "errno", None) == errno.ETIMEDOUT:
        return StorageProblem.NOT_RESPONDING
    return StorageProblem.FAILING


def _log_changes(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for name, state in after.items():
        if state and state != before.get(name):
            log.warning("storage host %s does not work on this machine: %s", name, state)
        elif not state and before.get(name):
            log.info("storage host %s works again on this machine", name)
