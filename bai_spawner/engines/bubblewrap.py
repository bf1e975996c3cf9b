"""Bubblewrap sandbox: what a session sees of the machine, and a probe whether it works here."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from bai_services.core.folders.mounts import HOME
from bai_services.core.sessions.launch_plan import LaunchPlan, Mount

# Programs and their configuration. Everything else of the machine (homes, /var, /run with its
# sockets, bai-hub's own state) is not visible at all.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc", "/sys")
EMPTY = ("/tmp", "/var/tmp", "/run")
PROBE_TIMEOUT_SECONDS = 10
SMALLEST_SHM_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A bubblewrap installation that was probed successfully."""

    program: str
    has_users: bool
    """User namespaces work: the session runs under its own uid without any privilege."""
    hidden: tuple[str, ...]
    """Files and folders of /etc that are not world-readable."""

    def arguments(
        self,
        plan: LaunchPlan,
        home: str,
        readable: Iterable[str],
        opened: Mapping[Mount, int] = MappingProxyType({}),
    ) -> list[str]:
        """Return the options for the sandbox of ``plan`` with its ``home`` folder.

        ``opened`` are the descriptors of those mounts that are directories of folders.
        """
        words = [*self._isolation(plan), *system_words(readable), *self._masks()]
        shm = max(plan.shared_memory_bytes, SMALLEST_SHM_BYTES)
        words += ["--proc", "/proc", "--dev", "/dev", "--size", str(shm), "--tmpfs", "/dev/shm"]
        for node in device_paths(plan):
            words += ["--dev-bind-try", node, node]
        words += ["--bind", home, HOME]
        for mount in plan.all_mounts:
            if mount in opened:
                kind = "--ro-bind-fd" if mount.read_only else "--bind-fd"
                words += [kind, str(opened[mount]), mount.target]
            elif mount.target != HOME:
                words += bind_words(mount)
        return [*words, "--remount-ro", "/", "--chdir", HOME]

    def _isolation(self, plan: LaunchPlan) -> list[str]:
        words = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--hostname", plan.hostname, "--cap-drop", "ALL", "--clearenv"]
        if self.has_users:
            words += ["--unshare-user", "--uid", str(plan.uid), "--gid", str(plan.gid)]
        return words

    def _masks(self) -> list[str]:
        words = []
        for path in self.hidden:
            kind = "--tmpfs" if os.path.isdir(path) else "--ro-bind"
            words += [kind, path] if kind == "--tmpfs" else [kind, "/dev/null", path]
        return words


def bind_words(mount: Mount) -> list[str]:
    return ["--ro-bind" if mount.read_only else "--bind", mount.source, mount.target]


def device_paths(plan: LaunchPlan) -> list[str]:
    """Return the device nodes of a plan; in a mapping, ``path`` is the path on the machine."""
    return [
        str(node["path"]) if isinstance(node, Mapping) else str(node)
        for node in plan.injection.device_nodes
    ]


def system_words(readable: Iterable[str]) -> list[str]:
    """Return the options that expose the system's programs and ``readable`` paths, read-only."""
    words: list[str] = []
    for path in SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    for path in EMPTY:
        words += ["--tmpfs", path]
    resolver = os.path.realpath("/etc/resolv.conf")
    extra = [*python_paths(), *readable, *([resolver] if os.path.exists(resolver) else [])]
    for path in dict.fromkeys(extra):
        if not path.startswith(tuple(f"{root}/" for root in SYSTEM)) and os.path.exists(path):
            words += ["--ro-bind", path, path]
    return words


def python_paths() -> list[str]:
    """Return the paths of this Python, and of our packages that sessions load."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    for package in ("bai_labext", "bai_services"):
        spec = find_spec(package)
        paths += list(spec.submodule_search_locations or []) if spec else []
    return [path for path in paths if path not in ("/", "/usr")]


def not_for_everyone(folder: str, depth: int = 3) -> Iterator[str]:
    """Yield what other users may not read below ``folder``, without descending into it."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            continue
        needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
        if mode & needed != needed:
            yield entry.path
        elif stat.S_ISDIR(mode) and depth > 1:
            yield from not_for_everyone(entry.path, depth - 1)


def probe(uid: int, gid: int, hostname: str = "main1") -> Bubblewrap | str:
    """Return a bubblewrap that isolates a real process here, or why it does not work.

    Takes some hundredths of a second and blocks: run it in a thread, once.
    """
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    # Files unreadable to this process are unreadable to a session under the same uid.
    hidden = tuple(path for path in not_for_everyone("/etc") if os.access(path, os.R_OK))
    reason = "bubblewrap does not run here"
    for has_users in (True, False) if os.geteuid() == 0 else (True,):
        found = Bubblewrap(program, has_users, hidden)
        with tempfile.TemporaryDirectory() as home:
            words = found.arguments(_probe_plan(uid, gid, hostname), home, ())
            try:
                tried = subprocess.run(
                    [program, *words, "--", "/bin/sh", "-c", f"test ! -e '{home}'"],
                    capture_output=True,
                    text=True,
                    timeout=PROBE_TIMEOUT_SECONDS,
                )
            except subprocess.TimeoutExpired:
                continue
        if tried.returncode == 0:
            return found
        reason = f"bubblewrap does not run here: {tried.stderr.strip()[:500]}"
    return reason


def _probe_plan(uid: int, gid: int, hostname: str) -> LaunchPlan:
    nothing = "00000000-0000-0000-0000-000000000000"
    words = {"agent_id": "", "name": "", "user": "", "engine": "process", "hostname": hostname}
    return LaunchPlan.from_json(
        {"session_id": nothing, "kernel_id": nothing, "uid": uid, "gid": gid} | words
    )


@contextmanager
def handed_over(
    words: Sequence[str], environ: Mapping[str, str], user: str, hosts: Sequence[str] = ()
) -> Iterator[list[int]]:
    """Yield descriptors from which bubblewrap reads its options and the session's user list.

    Options include the environment, with tokens. On a command line any user of the machine could
    read them, and a loader variable (LD_PRELOAD) in bubblewrap's own environment would act outside
    the sandbox.
    """
    descriptors: list[int] = []
    try:
        uid, gid = _value_of(words, "--uid", os.getuid()), _value_of(words, "--gid", os.getgid())
        passwd = (
            "root:x:0:0:root:/root:/usr/sbin/nologin\n" if uid != "0" else ""
        ) + f"work:x:{uid}:{gid}:{user}:{HOME}:/bin/bash\n"
        group = ("root:x:0:\n" if gid != "0" else "") + f"work:x:{gid}:\n"
        for content in (passwd, group):
            descriptors.append(_descriptor_of(content))
        accounts = ["--ro-bind-data", str(descriptors[0]), "/etc/passwd"]
        accounts += ["--ro-bind-data", str(descriptors[1]), "/etc/group"]
        if hosts:
            # Processes share the machine's network: all host names of a cluster map to its own
            # address.
            names = f"127.0.0.1 localhost {' '.join(hosts)}\n::1 localhost\n"
            descriptors.append(_descriptor_of(names))
            accounts += ["--ro-bind-data", str(descriptors[-1]), "/etc/hosts"]
        at = words.index("--proc")
        settings = [word for pair in environ.items() for word in ("--setenv", *pair)]
        options = [*words[:at], *accounts, *words[at:], *settings]
        descriptors.append(_descriptor_of("\0".join(options)))
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _value_of(words: Sequence[str], option: str, otherwise: int) -> str:
    return words[words.index(option) + 1] if option in words else str(otherwise)


def _descriptor_of(content: str) -> int:
    descriptor = os.memfd_create("bai", os.MFD_CLOEXEC)
    Path(f"/proc/self/fd/{descriptor}").write_bytes(content.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
