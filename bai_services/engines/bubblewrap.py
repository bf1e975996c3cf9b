"""Bubblewrap sandbox: the file system of a session, and a check that bwrap works on this host."""

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

# Programs and their configuration. Besides these paths, a session sees only this Python, bai-hub's
# packages, the DNS configuration, its own mounts, its devices and ``ProcessEngine.readable_paths``.
# It sees neither /var nor sockets in /run nor state of bai-hub.
READ_ONLY_PATHS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/opt", "/etc", "/sys"),
)
TMPFS_PATHS = ("/tmp", "/var/tmp", "/run")
PROBE_TIMEOUT_SECONDS = 10
MIN_SHM_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A bubblewrap installation that was tested successfully."""

    program: str
    has_user_namespaces: bool
    """Whether user namespaces work.

    If so, the session has the plan's uid inside the sandbox, mapped to this process's uid on the
    host.
    """
    hidden: tuple[str, ...]
    """Paths in /etc that this process, but not every user, may read; the sandbox masks them."""

    def arguments(
        self,
        plan: LaunchPlan,
        home: str,
        readable: Iterable[str],
        opened: Mapping[Mount, int] = MappingProxyType({}),
    ) -> list[str]:
        """Return bubblewrap's arguments for the sandbox of ``plan`` with its ``home`` folder.

        ``readable`` are further paths that the session may read. ``opened`` maps mounts of virtual
        folders to descriptors of their already opened directories.
        """
        args = [*self._isolation(plan), *system_args(readable), *self._masks()]
        shm = max(plan.shared_memory_bytes, MIN_SHM_BYTES)
        args += ["--proc", "/proc", "--dev", "/dev", "--size", str(shm), "--tmpfs", "/dev/shm"]
        for node in device_paths(plan):
            args += ["--dev-bind-try", node, node]
        args += ["--bind", home, HOME]
        for mount in plan.all_mounts:
            if mount in opened:
                option = "--ro-bind-fd" if mount.read_only else "--bind-fd"
                args += [option, str(opened[mount]), mount.target]
            elif mount.target != HOME:
                args += bind_args(mount)
        return [*args, "--remount-ro", "/", "--chdir", HOME]

    def _isolation(self, plan: LaunchPlan) -> list[str]:
        args = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        args += ["--hostname", plan.hostname, "--cap-drop", "ALL", "--clearenv"]
        if self.has_user_namespaces:
            args += ["--unshare-user", "--uid", str(plan.uid), "--gid", str(plan.gid)]
        return args

    def _masks(self) -> list[str]:
        args = []
        for path in self.hidden:
            if os.path.isdir(path):
                args += ["--tmpfs", path]
            else:
                args += ["--ro-bind", "/dev/null", path]
        return args


def bind_args(mount: Mount) -> list[str]:
    return ["--ro-bind" if mount.read_only else "--bind", mount.source, mount.target]


def device_paths(plan: LaunchPlan) -> list[str]:
    """Return the host paths of a plan's device nodes: paths, or mappings with the key ``path``."""
    return [
        str(node["path"]) if isinstance(node, Mapping) else str(node)
        for node in plan.injection.device_nodes
    ]


def system_args(readable: Iterable[str]) -> list[str]:
    """Return the arguments that expose the host's programs and ``readable`` paths, read-only."""
    args: list[str] = []
    for path in READ_ONLY_PATHS:
        if os.path.islink(path):
            args += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            args += ["--ro-bind", path, path]
    for path in TMPFS_PATHS:
        args += ["--tmpfs", path]
    resolver = os.path.realpath("/etc/resolv.conf")
    extra = [*python_paths(), *readable, *([resolver] if os.path.exists(resolver) else [])]
    included = tuple(f"{root}/" for root in READ_ONLY_PATHS)
    for path in dict.fromkeys(extra):
        if not path.startswith(included) and os.path.exists(path):
            args += ["--ro-bind", path, path]
    return args


def python_paths() -> list[str]:
    """Return the folders of this Python, and of our packages that sessions import."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    for package in ("bai_labext", "bai_services"):
        spec = find_spec(package)
        paths += list(spec.submodule_search_locations or []) if spec else []
    return [path for path in paths if path not in ("/", "/usr")]


def not_world_readable(folder: str, depth: int = 3) -> Iterator[str]:
    """Yield the paths below ``folder`` that are not world-readable.

    Omit links, paths inside a yielded directory, and paths more than ``depth`` levels below
    ``folder``.
    """
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
            yield from not_world_readable(entry.path, depth - 1)


def probe(uid: int, gid: int, hostname: str = "main1") -> Bubblewrap | str:
    """Run a test process in a sandbox; return a working configuration, or why there is none.

    Blocks, normally for tens of milliseconds: run it once, in a thread.
    """
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    # Mask only what this process can read. A session has the same uid on the host, so it cannot
    # read the rest.
    hidden = tuple(path for path in not_world_readable("/etc") if os.access(path, os.R_OK))
    reason = "bubblewrap does not work on this host"
    for has_user_namespaces in (True, False) if os.geteuid() == 0 else (True,):
        bubblewrap = Bubblewrap(program, has_user_namespaces, hidden)
        with tempfile.TemporaryDirectory() as home:
            args = bubblewrap.arguments(_probe_plan(uid, gid, hostname), home, ())
            try:
                done = subprocess.run(
                    [program, *args, "--", "/bin/sh", "-c", f"test ! -e '{home}'"],
                    capture_output=True,
                    text=True,
                    timeout=PROBE_TIMEOUT_SECONDS,
                )
            except subprocess.TimeoutExpired:
                continue
        if done.returncode == 0:
            return bubblewrap
        reason = f"bubblewrap does not work on this host: {done.stderr.strip()[:500]}"
    return reason


def _probe_plan(uid: int, gid: int, hostname: str) -> LaunchPlan:
    no_id = "00000000-0000-0000-0000-000000000000"
    texts = {"agent_id": "", "name": "", "user": "", "engine": "process", "hostname": hostname}
    return LaunchPlan.from_json(
        {"session_id": no_id, "kernel_id": no_id, "uid": uid, "gid": gid} | texts
    )


@contextmanager
def option_descriptors(
    args: Sequence[str], environ: Mapping[str, str], user: str, hosts: Sequence[str] = ()
) -> Iterator[list[int]]:
    """Yield the descriptors that bubblewrap must inherit; the last one contains its arguments.

    The others contain the files /etc/passwd, /etc/group and, with ``hosts``, /etc/hosts of the
    sandbox. The arguments set the environment, which contains tokens: on a command line every user
    of the host could read them. The variables are not set in bubblewrap's own environment either,
    because loader variables such as LD_PRELOAD would take effect outside the sandbox.
    """
    descriptors: list[int] = []
    try:
        uid, gid = _value_of(args, "--uid", os.getuid()), _value_of(args, "--gid", os.getgid())
        passwd = (
            "root:x:0:0:root:/root:/usr/sbin/nologin\n" if uid != "0" else ""
        ) + f"work:x:{uid}:{gid}:{user}:{HOME}:/bin/bash\n"
        group = ("root:x:0:\n" if gid != "0" else "") + f"work:x:{gid}:\n"
        for content in (passwd, group):
            descriptors.append(_descriptor_of(content))
        accounts = ["--ro-bind-data", str(descriptors[0]), "/etc/passwd"]
        accounts += ["--ro-bind-data", str(descriptors[1]), "/etc/group"]
        if hosts:
            # Sandboxes share the host's network, so all host names of a cluster session are local.
            names = f"127.0.0.1 localhost {' '.join(hosts)}\n::1 localhost\n"
            descriptors.append(_descriptor_of(names))
            accounts += ["--ro-bind-data", str(descriptors[-1]), "/etc/hosts"]
        # Mount these files after the read-only mount of /etc, which would otherwise hide them.
        at = args.index("--proc")
        settings = [arg for pair in environ.items() for arg in ("--setenv", *pair)]
        all_args = [*args[:at], *accounts, *args[at:], *settings]
        descriptors.append(_descriptor_of("\0".join(all_args)))
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@contextmanager
def memory_file(content: str) -> Iterator[int]:
    """Yield the descriptor of a file in memory with this content."""
    descriptor = _descriptor_of(content)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _value_of(args: Sequence[str], option: str, default: int) -> str:
    return args[args.index(option) + 1] if option in args else str(default)


def _descriptor_of(content: str) -> int:
    descriptor = os.memfd_create("bai", os.MFD_CLOEXEC)
    Path(f"/proc/self/fd/{descriptor}").write_bytes(content.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
