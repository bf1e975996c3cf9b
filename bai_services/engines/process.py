"""Process engine: sessions as processes of the Hub's host, in a bubblewrap sandbox if possible."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from traitlets import Enum, List, TraitError, Unicode, default, validate

from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import InvalidRequest
from bai_services.core.folders.mounts import HOME
from bai_services.core.resources import MEM, parse_amount
from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.kernel_group import folder_name
from bai_services.core.sessions.launch_plan import LaunchPlan, Mount
from bai_services.system.openat2 import open_directory_beneath
from bai_services.system.ports import free_port

from . import enter_sandbox, processes, timed_log
from .base import (
    Engine,
    EngineError,
    Exit,
    Running,
    attached_environ,
    merged_environ,
    tail,
)
from .bubblewrap import Bubblewrap, memory_file, option_descriptors, probe

POLL_INTERVAL_SECONDS = 0.02
# `bai_labext` runs Jupyter's single-user server without the imports that dominate its start time.
# -P: modules in the home folder must not shadow modules of the server.
SINGLEUSER = (sys.executable, "-P", "-m", "bai_labext")
SANDBOX_START_TIMEOUT_SECONDS = 5
# Time for the last output to reach the log after all processes of a kernel have ended.
LOG_DRAIN_TIMEOUT_SECONDS = 5
MIN_LOG_BYTES = 64 * 1024
LINKS_FILE = "links.json"

# Run the command (third argument and later) in folder $2. Append a mark before it starts, and its
# exit code when it has ended, to file $1. A restarted Hub or agent reads that file. In a sandbox,
# bubblewrap itself writes both, so no script is needed.
RUN_AND_STORE_EXIT_CODE = """
status=$1 folder=$2; shift 2
printf '{ "started": 1 }\\n' >>"$status" || exit
cd "$folder" && "$@"
code=$?
printf '{ "exit-code": %d }\\n' "$code" >>"$status"
exit "$code"
"""


class ProcessEngine(Engine):
    """Run each kernel as a process tree that uses the Hub's Python and survives a Hub restart.

    With bubblewrap, a session runs in a sandbox with the system's programs, its home, its folders
    and ``readable_paths``. Without bubblewrap, it runs like any other process of the Hub's user;
    the log and a notice of the session report that.
    """

    name = "process"
    is_local = True

    state_dir = Unicode(
        help="""
        Folder that contains `sessions/` with one folder per kernel (scratch home, log, exit
        status). The agent of this machine creates and removes these folders. The default is
        `BAI_HOME`, like the agent's folder.
        """
    ).tag(config=True)

    isolation = Enum(
        ["auto", "bubblewrap", "none"],
        "auto",
        help="""
        Whether sessions run in a sandbox. `auto` uses bubblewrap if it works on this machine. If
        it does not work, the log and a notice of the session say so. `bubblewrap` requires
        bubblewrap: if it does not work, every start fails. `none` never uses it.
        """,
    ).tag(config=True)

    readable_paths = List(
        Unicode(),
        help="""
        Absolute paths that every session may read in addition to the system's programs and this
        Python. No effect without bubblewrap.
        """,
    ).tag(config=True)

    log_max_size = Unicode(
        "10m",
        help="""
        Maximum size of a kernel's log, at least `64k`. When the log exceeds this size, its older
        half is dropped.
        """,
    ).tag(config=True)

    @validate("log_max_size")
    def _check_log_size(self, proposal: Any) -> str:
        try:
            is_enough = parse_amount(MEM, proposal.value) >= MIN_LOG_BYTES
        except InvalidRequest as error:
            raise TraitError(f"ProcessEngine.log_max_size: {error}") from error
        if not is_enough:
            raise TraitError(
                f"ProcessEngine.log_max_size must be at least 64k, not {proposal.value}"
            )
        return str(proposal.value)

    @default("state_dir")
    def _default_state_dir(self) -> str:
        return os.environ.get("BAI_HOME", ".bai")

    def __init__(self, shared: MutableMapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Shared by all engines of the Hub: the result of the bubblewrap probe.
        self._shared = {} if shared is None else shared

    async def address(self, plan: LaunchPlan) -> tuple[str, int]:
        return "127.0.0.1", free_port()

    async def start(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        sandbox = await self._sandbox(plan)
        argv = list(plan.command or command or SINGLEUSER)
        url = _url_of(environ)

        def launch() -> Running:
            processes.kill_kernel(plan.kernel_id)
            if isinstance(sandbox, Bubblewrap):
                return self._launch_in_sandbox(sandbox, plan, environ, argv)
            return self._launch_without_sandbox(plan, environ, argv)

        running = await _launch_in_thread(launch, plan.kernel_id)
        return replace(
            running,
            url=url,
            owner=plan.user,
            kernel_id=plan.kernel_id,
            hostname=plan.hostname,
        )

    async def find(self, kernel: Running) -> Running | None:
        return await asyncio.to_thread(self._find, kernel)

    def _find(self, kernel: Running) -> Running | None:
        pid = processes.root_of_kernel(kernel.kernel_id)
        # The sandbox, or the script, writes to this file before the command runs.
        status = processes.read_status(self._status_file(_name_of(kernel)))
        if not pid and not status:
            return None
        init_pid = status.get("child-pid", 0) if pid else 0
        return replace(
            kernel,
            container_id=f"pid-{pid}",
            pid=pid,
            pid_started=processes.started_at(pid) if pid else "",
            init_pid=init_pid,
            init_started=processes.started_at(init_pid) if init_pid else "",
        )

    async def attach(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        kernel = await self.find(Running.named(plan))
        if kernel is None or await self.poll(kernel) is not None:
            raise EngineError(f"the command of session {plan.name} has ended", reason="ended")
        await asyncio.to_thread(processes.kill_attached, plan.kernel_id)
        url, hub = _url_of(environ), attached_environ(plan, environ)
        argv = list(command or SINGLEUSER)

        def launch() -> Running:
            if kernel.init_pid:
                in_sandbox = merged_environ(plan, hub, _own_environ(plan, HOME))
                return self._enter_sandbox(kernel, plan, {**in_sandbox, **hub}, argv)
            home = processes.working_directory(kernel.pid) or str(self._folder(_name_of(plan)))
            environ = {**merged_environ(plan, hub, _own_environ(plan, home)), **hub}
            return self._spawn_attached(argv, plan, environ, [])

        try:
            running = await asyncio.to_thread(launch)
        except OSError as error:
            raise EngineError(f"the server cannot be started: {error.strerror}") from error
        return replace(running, url=url, owner=plan.user)

    async def poll_attached(self, running: Running) -> Exit | None:
        if await asyncio.to_thread(processes.is_alive, running.pid, running.pid_started):
            return None
        await asyncio.to_thread(processes.reap, running.pid)
        return Exit(None)

    async def stop_attached(self, running: Running, now: bool = False) -> Exit:
        grace = 0.0 if now else self.stop_grace_seconds
        await asyncio.to_thread(processes.kill_attached, running.kernel_id, grace)
        await asyncio.to_thread(processes.reap, running.pid)
        return Exit(None, EndReason.STOPPED, TextTemplate.STOPPED.value)

    async def poll(self, running: Running) -> Exit | None:
        if await asyncio.to_thread(processes.is_alive, running.pid, running.pid_started):
            return None
        # Other processes of the kernel can still run after the one that was started has ended.
        await asyncio.to_thread(self._kill_all, running)
        code = processes.read_status(self._status_file(_name_of(running))).get("exit-code")
        if code in (None, 128 + signal.SIGKILL):
            return Exit(code, EndReason.INTERRUPTED, TextTemplate.KILLED_FROM_OUTSIDE.value)
        return Exit(code)

    async def read_log(self, running: Running, max_bytes: int) -> str:
        path = self._folder(_name_of(running)) / "session.log"
        return tail(await asyncio.to_thread(processes.read_tail, path, max_bytes), max_bytes)

    async def stop(self, running: Running, now: bool = False) -> Exit:
        grace = 0.0 if now else self.stop_grace_seconds
        if grace:
            await asyncio.to_thread(self._terminate, running)
        deadline = asyncio.get_running_loop().time() + grace
        while asyncio.get_running_loop().time() < deadline:
            ended = await self.poll(running)
            if ended is not None:
                return ended
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        await asyncio.to_thread(self._kill_all, running)
        return await self.poll(running) or Exit(
            None, EndReason.INTERRUPTED, TextTemplate.KILLED.value
        )

    async def remove(self, running: Running) -> None:
        """Remove the links to folders; the agent removes the rest after reading the log."""
        await asyncio.to_thread(_unlink_folders, self._folder(_name_of(running)))

    def _folder(self, name: str) -> Path:
        return Path(self.state_dir).absolute() / "sessions" / name

    def _status_file(self, name: str) -> Path:
        return self._folder(name) / "exit.json"

    async def _sandbox(self, plan: LaunchPlan) -> Bubblewrap | str:
        if self.isolation == "none":
            return "the Hub's configuration disables the sandbox"
        if "bubblewrap" not in self._shared:
            self._shared["bubblewrap"] = await asyncio.to_thread(probe, plan.uid, plan.gid)
        found: Bubblewrap | str = self._shared["bubblewrap"]
        if isinstance(found, str):
            if self.isolation == "bubblewrap":
                raise EngineError(f"{found}, but this Hub requires it for every session")
            self.log.warning("Session %s is not isolated: %s", plan.session_id, found)
        return found

    def _prepare(self, plan: LaunchPlan, mounts: Sequence[Mount]) -> tuple[Path, str]:
        """Create and return the kernel's folder and the home folder; check the mounts' sources."""
        folder = self._folder(_name_of(plan))
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            mounted = [mount.source for mount in mounts if mount.target == HOME]
            home = mounted[0] if mounted else str(folder / "home")
            Path(home).mkdir(mode=0o700, exist_ok=True)
            self._status_file(_name_of(plan)).unlink(missing_ok=True)
        except OSError as error:
            raise EngineError(
                f"the session's folder cannot be created: {error.strerror}"
            ) from error
        for mount in mounts:
            if not os.path.exists(mount.source):
                raise EngineError(
                    f"the source of the mount at {mount.target} does not exist on the machine"
                )
        return folder, home

    def _launch_in_sandbox(
        self, sandbox: Bubblewrap, plan: LaunchPlan, hub: Mapping[str, str], command: list[str]
    ) -> Running:
        folder, home = self._prepare(plan, [m for m in plan.all_mounts if not m.subpath])
        environ = merged_environ(plan, hub, _own_environ(plan, HOME))
        status_file = folder / "exit.json"
        with ExitStack() as stack:
            opened = {m: stack.enter_context(_opened(m)) for m in plan.all_mounts if m.subpath}
            args = sandbox.arguments(plan, home, self.readable_paths, opened)
            files = stack.enter_context(
                option_descriptors(args, environ, plan.user, plan.cluster_hosts)
            )
            status = stack.enter_context(open(status_file, "ab"))
            argv = [sandbox.program, "--args", str(files[-1])]
            argv += ["--json-status-fd", str(status.fileno()), "--", *command]
            descriptors = [*opened.values(), *files, status.fileno()]
            running = self._spawn(argv, plan, plan.marks, descriptors)
        init_pid = _wait_for_init(running.pid, status_file)
        return replace(running, init_pid=init_pid, init_started=processes.started_at(init_pid))

    def _launch_without_sandbox(
        self, plan: LaunchPlan, hub: Mapping[str, str], command: list[str]
    ) -> Running:
        mounts = [_resolve_subpath(mount) for mount in plan.all_mounts]
        folder, home = self._prepare(plan, mounts)
        links = _link_folders(home, mounts)
        if Path(home) == folder / "home":
            # Keep the links in a home folder that is mounted, because other sessions may use them.
            (folder / LINKS_FILE).write_text(json.dumps(links))
        environ = merged_environ(plan, hub, _own_environ(plan, home))
        shell = ["/bin/sh", "-c", RUN_AND_STORE_EXIT_CODE, "bai"]
        return self._spawn([*shell, str(folder / "exit.json"), home, *command], plan, environ, [])

    def _spawn(
        self, argv: list[str], plan: LaunchPlan, environ: Mapping[str, str], files: list[int]
    ) -> Running:
        """Start a command in its own process session (``setsid``), with output to the kernel's log.

        The command inherits only the descriptors ``files``.
        """
        read_end, write_end = os.pipe()
        try:
            log_pid = self._start_log_writer(self._folder(_name_of(plan)), read_end)
            pid = _posix_spawn(argv, environ, write_end, files)
        except OSError as error:
            raise EngineError(f"{argv[0]} cannot be started: {error.strerror}") from error
        finally:
            os.close(read_end)
            os.close(write_end)
        return Running(
            engine=self.name,
            session_id=plan.session_id,
            url="",
            container_id=f"pid-{pid}",
            pid=pid,
            pid_started=processes.started_at(pid),
            log_pid=log_pid,
            log_started=processes.started_at(log_pid),
        )

    def _enter_sandbox(
        self, kernel: Running, plan: LaunchPlan, environ: Mapping[str, str], command: list[str]
    ) -> Running:
        """Start a command in the sandbox of a running kernel.

        A file descriptor contains the environment: on a command line every user of the host could
        read it, and loader variables would take effect outside the sandbox.
        """
        settings = json.dumps({"environ": dict(environ), "command": command, "folder": HOME})
        with memory_file(settings) as settings_file:
            program = [sys.executable, "-I", "-S", enter_sandbox.__file__]
            argv = [*program, str(kernel.init_pid), str(settings_file)]
            return self._spawn_attached(argv, plan, {}, [settings_file])

    def _spawn_attached(
        self, argv: list[str], plan: LaunchPlan, environ: Mapping[str, str], files: list[int]
    ) -> Running:
        """Start an attached server; it writes its own log."""
        output = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        try:
            pid = _posix_spawn(argv, environ, output, files)
        finally:
            os.close(output)
        return replace(
            Running.named(plan),
            is_attached=True,
            pid=pid,
            pid_started=processes.started_at(pid),
        )

    def _start_log_writer(self, folder: Path, read_end: int) -> int:
        """Start the log writer and return its pid; it exits when the pipe's write end is closed."""
        size = str(parse_amount(MEM, self.log_max_size))
        argv = [sys.executable, "-I", "-S", timed_log.__file__, str(folder / "session.log"), size]
        # The writer must not be killed with the kernel, so its environment does not identify
        # the kernel.
        environ = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
        quiet = [(os.POSIX_SPAWN_OPEN, n, "/dev/null", os.O_WRONLY, 0) for n in (1, 2)]
        actions = [(os.POSIX_SPAWN_DUP2, read_end, 0), *quiet]
        return os.posix_spawn(sys.executable, argv, environ, file_actions=actions, setsid=True)

    def _terminate(self, running: Running) -> None:
        # Signal the server itself, so that it stops Jupyter kernels and apps in order. The server
        # may not exist yet shortly after the start.
        parent = running.init_pid or running.pid
        deadline = time.monotonic() + SANDBOX_START_TIMEOUT_SECONDS
        while not (servers := processes.children(parent)) and time.monotonic() < deadline:
            if not processes.is_alive(running.pid, running.pid_started):
                return
            time.sleep(0.005)
        processes.signal_all(servers, signal.SIGTERM)

    def _kill_all(self, running: Running) -> None:
        if running.init_pid:
            # Killing the first process of a pid namespace kills all processes in it.
            processes.kill(running.init_pid, running.init_started)
        if running.kernel_id:
            processes.kill_kernel(running.kernel_id)
        else:  # started by a version that did not save kernel_id
            processes.kill_session(running.session_id)
        if running.pid:
            processes.reap(running.pid)
        if running.log_pid:
            log = (running.log_pid, running.log_started)
            processes.wait_or_kill(*log, LOG_DRAIN_TIMEOUT_SECONDS)


def _name_of(one: LaunchPlan | Running) -> str:
    """Return the name of a kernel's folder."""
    return folder_name(one.session_id, one.hostname)


async def _launch_in_thread(launch: Callable[[], Running], kernel_id: str) -> Running:
    """Run ``launch`` in a thread, and return its result.

    If this call is cancelled, kill what ``launch`` has started.
    """
    task = asyncio.ensure_future(asyncio.to_thread(launch))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # Wait for the thread first, because it cannot be cancelled.
        await asyncio.wait([task])
        await asyncio.to_thread(processes.kill_kernel, kernel_id)
        raise


def _posix_spawn(argv: list[str], environ: Mapping[str, str], output: int, files: list[int]) -> int:
    actions: list[tuple[int, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),  # type: ignore[list-item]
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
        *((os.POSIX_SPAWN_DUP2, file, file) for file in files),
    ]
    return os.posix_spawn(
        argv[0],
        argv,
        dict(environ),
        file_actions=actions,
        setsid=True,
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
    )


def _url_of(environ: Mapping[str, str]) -> str:
    """Return the URL at which the server will listen; empty for a sub kernel."""
    if "JUPYTERHUB_SERVICE_URL" not in environ:
        return ""
    scheme, _, rest = environ["JUPYTERHUB_SERVICE_URL"].partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _own_environ(plan: LaunchPlan, home: str) -> dict[str, str]:
    environ = {
        "HOME": home,
        "USER": "work",
        "LOGNAME": "work",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "BAI_SESSION_ENGINE": plan.engine,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    labext = find_spec("bai_labext")
    if labext is not None and labext.submodule_search_locations:
        environ["JUPYTER_CONFIG_PATH"] = str(Path(labext.submodule_search_locations[0]) / "config")
    return environ


def _wait_for_init(pid: int, status: Path) -> int:
    """Return the pid of the sandbox's first process; 0 if bubblewrap does not report it in time."""
    deadline = time.monotonic() + SANDBOX_START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = processes.read_status(status)
        if "child-pid" in found:
            return found["child-pid"]
        if not processes.is_alive(pid, processes.started_at(pid)):
            return 0
        time.sleep(processes.POLL_INTERVAL_SECONDS)
    return 0


@contextmanager
def _opened(mount: Mount) -> Iterator[int]:
    """Yield a descriptor of the directory that a mount with a subpath refers to.

    Raises
    ------
    EngineError
        If the directory cannot be opened, for example because it no longer exists or a symbolic
        link leads out of the folder.
    """
    try:
        directory = open_directory_beneath(mount.source, mount.subpath)
    except OSError as error:
        raise EngineError(
            f"{mount.subpath} of the folder at {mount.target} cannot be mounted: {error.strerror}"
        ) from error
    try:
        yield directory
    finally:
        os.close(directory)


def _resolve_subpath(mount: Mount) -> Mount:
    """Return a mount whose source is the resolved path of its directory."""
    if not mount.subpath:
        return mount
    with _opened(mount) as directory:
        return replace(mount, source=os.readlink(f"/proc/self/fd/{directory}"), subpath="")


def _link_folders(home: str, mounts: Sequence[Mount]) -> dict[str, str]:
    """Create symbolic links in ``home`` to the folders; without a sandbox nothing can be mounted.

    Return the target of each link by its path in ``home``.

    Raises
    ------
    EngineError
        If the session could write to a folder of another user that was granted read-only, or if a
        target is outside the home or not empty.
    """
    links: dict[str, str] = {}
    for mount in mounts:
        if mount.target in (HOME, mount.source):
            continue  # the session can use the path itself
        advice = "install bubblewrap on this machine, or use a Docker resource group"
        if mount.read_only and not mount.is_own:
            raise EngineError(
                f"the folder at {mount.target} was granted read-only, which needs a sandbox: "
                f"{advice}",
                reason="not-isolated",
            )
        target = PurePosixPath(mount.target)
        if not target.is_relative_to(HOME):
            raise EngineError(
                f"the folder at {mount.target} is outside {HOME}, which needs a sandbox: {advice}",
                reason="not-isolated",
            )
        link = Path(home) / target.relative_to(HOME)
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        if link.exists():
            if not link.is_dir() or any(link.iterdir()):
                raise EngineError(
                    f"the folder cannot be linked at {mount.target}: that path is not empty"
                )
            link.rmdir()
        link.symlink_to(mount.source)
        links[str(target.relative_to(HOME))] = mount.source
    return links


def _unlink_folders(folder: Path) -> None:
    """Remove the links that ``_link_folders`` created in the scratch home of a kernel's folder."""
    try:
        links = json.loads((folder / LINKS_FILE).read_text())
    except (OSError, ValueError):  # no link was created, or the Hub was killed while writing
        return
    for path, source in links.items():
        link = folder / "home" / path
        with suppress(OSError):  # the session may have removed or replaced the link
            if link.is_symlink() and os.readlink(link) == source:
                link.unlink()
