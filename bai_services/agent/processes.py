"""Process engine: sessions are process trees, found by environment variables of their processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bai_services.core.errors import NotFound
from bai_services.core.resources import MEM
from bai_services.core.sessions.resizing import memory_in_use

from .engine import Engine, Prepared, ReportProgress
from .folders.kernel_folders import Folders
from .kernels import Kernel, Task
from .machine import detect_isolation

# Environment variables that the spawner sets for a kernel; the kernel's processes inherit them.
AGENT, SESSION, KERNEL = b"BAI_AGENT_ID", b"BAI_SESSION_ID", b"BAI_KERNEL_ID"
KILL_ROUNDS = 20
KILL_WAIT_SECONDS = 0.5


@dataclass(slots=True)
class ProcessTree:
    """The processes of one kernel: all processes with its variables, and their descendants."""

    session_id: str
    kernel_id: str
    pids: set[int] = field(default_factory=set)


class Processes:
    """Finds, measures and terminates the processes of kernels.

    All public methods except ``retain`` block.
    """

    def __init__(self, agent_id: str, proc: Path = Path("/proc")) -> None:
        self._agent_id = agent_id.encode()
        self._proc = proc
        self._cpu: dict[str, tuple[float, float]] = {}

    def trees(self) -> list[ProcessTree]:
        """Return the process tree of every running kernel of this agent, without zombies."""
        trees: dict[str, ProcessTree] = {}
        children: dict[int, list[int]] = defaultdict(list)
        for pid in self._pids():
            parent = self._parent(pid)
            if parent is None:
                continue
            children[parent].append(pid)
            variables = self._kernel_variables(pid)
            if variables.get(AGENT) == self._agent_id and variables.get(SESSION):
                session_id = variables[SESSION].decode(errors="replace")
                kernel_id = variables.get(KERNEL, b"").decode(errors="replace")
                tree = trees.setdefault(kernel_id or session_id, ProcessTree(session_id, kernel_id))
                tree.pids.add(pid)
        for tree in trees.values():
            # Include descendants, because a process may have cleared its environment.
            tree.pids |= _descendants(tree.pids, children)
        return list(trees.values())

    def usage(self, tree: ProcessTree) -> dict[str, Any]:
        """Return a kernel's current usage; ``cpu_cores`` is the mean since the previous call.

        Unknown values are left out: 0 would count as idle.
        """
        totals: dict[str, float] = defaultdict(float)
        for pid in tree.pids:
            for name, value in _usage_of(pid).items():
                totals[name] += value
        now, cpu_seconds = time.monotonic(), totals["cpu_seconds"]
        before = self._cpu.get(tree.kernel_id)
        self._cpu[tree.kernel_id] = (now, cpu_seconds)
        usage: dict[str, Any] = {
            "cpu_seconds": round(cpu_seconds, 2),
            "mem_bytes": int(totals["mem_bytes"]),
            "processes": len(tree.pids),
            "threads": int(totals["threads"]),
        }
        # The CPU seconds of a process that has ended and had no parent in the tree are lost.
        if before is not None and now > before[0] and cpu_seconds >= before[1]:
            usage["cpu_cores"] = round((cpu_seconds - before[1]) / (now - before[0]), 3)
        for name in ("io_read_bytes", "io_write_bytes"):
            if name in totals:
                usage[name] = int(totals[name])
        return usage

    def retain(self, kernel_ids: Iterable[str]) -> None:
        """Drop the CPU samples of all other kernels."""
        self._cpu = {key: self._cpu[key] for key in set(kernel_ids) & self._cpu.keys()}

    def terminate(self, kernel_id: str, grace_seconds: float) -> bool:
        """Terminate every process of a kernel with SIGTERM, then SIGKILL; return whether all
        have exited.
        """
        known: set[psutil.Process] = set()
        alive = self._alive(kernel_id, known)
        _signal(alive, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while alive and time.monotonic() < deadline:
            time.sleep(0.05)
            alive = self._alive(kernel_id, known)
        for _ in range(KILL_ROUNDS):
            # The next round finds processes that were forked in the meantime.
            if not alive:
                return True
            _signal(alive, signal.SIGKILL)
            deadline = time.monotonic() + KILL_WAIT_SECONDS
            while (alive := self._alive(kernel_id, known)) and time.monotonic() < deadline:
                time.sleep(0.02)
        return not alive

    def _alive(self, kernel_id: str, known: set[psutil.Process]) -> list[psutil.Process]:
        """Return the living processes of a kernel, and add them to ``known``.

        ``known`` is the only record of processes that have cleared their environment and whose
        parent has ended.
        """
        for tree in self.trees():
            if tree.kernel_id == kernel_id:
                for pid in tree.pids:
                    with suppress(psutil.Error):
                        known.add(psutil.Process(pid))
        return [process for process in known if is_running(process)]

    def _pids(self) -> list[int]:
        return [int(name) for name in os.listdir(self._proc) if name.isdecimal()]

    def _parent(self, pid: int) -> int | None:
        """Return the pid of a process's parent; None if the process has ended."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        # The process name, in parentheses, can contain any character, even parentheses and spaces.
        state, parent, *_ = text.rpartition(")")[2].split()
        return None if state in "ZX" else int(parent)

    def _kernel_variables(self, pid: int) -> Mapping[bytes, bytes]:
        try:
            environ = (self._proc / str(pid) / "environ").read_bytes()
        except OSError:
            return {}
        if SESSION not in environ:
            return {}
        pairs = (entry.partition(b"=") for entry in environ.split(b"\0"))
        return {name: value for name, _, value in pairs if name in (AGENT, SESSION, KERNEL)}


class ProcessEngine(Engine):
    """Engine for sessions that the spawner starts as processes of this machine."""

    name = "process"

    def __init__(self, agent_id: str, folders: Folders, stop_grace_seconds: float) -> None:
        self._processes = Processes(agent_id)
        self._folders = folders
        self._stop_grace_seconds = stop_grace_seconds
        self._notices: tuple[str, ...] | None = None

    async def facts(self) -> dict[str, Any]:
        isolation = await asyncio.to_thread(detect_isolation, self.name)
        self._notices = isolation.notices
        return {"isolation": isolation.isolation, "notices": list(isolation.notices)}

    async def observe(self) -> list[Kernel] | None:
        return await asyncio.to_thread(self._observe)

    async def prepare(self, task: Task, report_progress: ReportProgress) -> Prepared:
        if self._notices is None:
            await self.facts()
        # ``uid`` remains None, so the home directory belongs to the agent's user. The Hub and its
        # sessions run as the same user, even if the session has another uid in its sandbox.
        return Prepared(notices=self._notices or ())

    async def remove(self, task: Task) -> None:
        await asyncio.to_thread(self._processes.terminate, task.kernel_id, self._stop_grace_seconds)

    async def resize(self, task: Task) -> None:
        """Check the memory in use. There are no limits to change: this engine limits neither cpu
        nor memory of processes.
        """
        await asyncio.to_thread(self._check_memory, task)

    def _check_memory(self, task: Task) -> None:
        tree = next((t for t in self._processes.trees() if t.kernel_id == task.kernel_id), None)
        if tree is None:
            raise NotFound(f"session {task.session_id} does not run on this machine")
        used = sum(int(_usage_of(pid).get("mem_bytes", 0)) for pid in tree.pids)
        if used > task.slots.get(MEM, used):
            raise memory_in_use(used, task.slots[MEM])

    async def log(self, task: Task) -> str | None:
        return await asyncio.to_thread(self._folders.log, task.folder)

    async def owners(self, pids: Collection[int]) -> Mapping[int, str]:
        trees = await asyncio.to_thread(self._processes.trees)
        return {pid: tree.session_id for tree in trees for pid in tree.pids & set(pids)}

    def _observe(self) -> list[Kernel]:
        trees = self._processes.trees()
        self._processes.retain(tree.kernel_id for tree in trees)
        return [
            Kernel(
                kernel_id=tree.kernel_id,
                session_id=tree.session_id,
                container_id=f"pid-{min(tree.pids)}",
                is_running=True,
                usage=self._processes.usage(tree),
            )
            for tree in trees
        ]


def _descendants(pids: set[int], children: Mapping[int, list[int]]) -> set[int]:
    descendants: set[int] = set()
    stack = list(pids)
    while stack:
        for child in children.get(stack.pop(), ()):
            if child not in descendants:
                descendants.add(child)
                stack.append(child)
    return descendants


def _usage_of(pid: int) -> dict[str, float]:
    """Return the readable part of the usage of one process."""
    usage: dict[str, float] = {}
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            # The CPU seconds of a process include those of its ended children.
            ended = times.children_user + times.children_system
            usage["cpu_seconds"] = times.user + times.system + ended
            usage["threads"] = process.num_threads()
            usage["mem_bytes"] = process.memory_info().rss
        # PSS divides shared pages among the processes that map them; RSS counts them in each one.
        usage["mem_bytes"] = process.memory_full_info().pss
        io = process.io_counters()
        usage["io_read_bytes"], usage["io_write_bytes"] = io.read_bytes, io.write_bytes
    except (psutil.Error, OSError, AttributeError):
        # The process has ended or is not readable: return the values read so far.
        return usage
    return usage


def is_running(process: psutil.Process) -> bool:
    """Return whether a process still runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
