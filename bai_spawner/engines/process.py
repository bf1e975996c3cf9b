"""Sessions as processes of this machine, in a bubblewrap sandbox where that works."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from traitlets import Enum, List, TraitError, Unicode, default, validate

from bai_services.core.errors import InvalidRequest
from bai_services.core.folders.mounts import HOME
from bai_services.core.resources import MEM, parse_amount
from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.kernel_group import folder_name
from bai_services.core.sessions.launch_plan import LaunchPlan, Mount
from bai_services.openat2 import open_directory_beneath
from bai_services.ports import free_port

from . import processes, timed_log
from .base import Engine, EngineError, Exit, Running, merged_environ, tail
from .bubblewrap import Bubblewrap, handed_over, probe

STEP_SECONDS = 0.02
# -P: modules in the home folder must not shadow those that the server imports. This is Jupyter's
# single-user server without the imports that dominate its start time.
SINGLEUSER = (sys.executable, "-P", "-m", "bai_labext")
SANDBOX_WAIT_SECONDS = 5
# Grace period for the last output to reach the log after all processes of a kernel have ended.
LOG_WAIT_SECONDS = 5
MIN_LOG_BYTES = 64 * 1024

# Runs the command (from the third argument on) in folder $2 and writes its exit code to file $1:
# the Hub that started it may have ended by then.
STAND_IN = """
status=$1 folder=$2; shift 2
cd "$folder" && "$@"
code=$?
printf '{ "exit-code": %d }\\n' "$code" >>"$status"
exit "$code"
"""


class ProcessEngine(Engine):
    """Runs ``jupyterhub-singleuser`` of the Hub's own Python, one process tree per session.

    The tree outlives the Hub. With bubblewrap it sees programs, its home and its folders; without,
    it runs like any other process of the Hub's user, and reports that.
    """

    name = "process"
    is_local = True

    state_dir = Unicode(
        help="""
        Folder with a folder per session below `sessions/` (scratch home, log, exit status).

        The default is `BAI_HOME`, where the agent of this machine makes them.
        """
    ).tag(config=True)

    isolation = Enum(
        ["auto", "bubblewrap", "none"],
        "auto",
        help="""
        Whether sessions run in a sandbox: `auto` takes bubblewrap where it works and goes without
        elsewhere (the log and the session say so), `bubblewrap` refuses to start without it,
        `none` never uses it.
        """,
    ).tag(config=True)

    readable_paths = List(
        Unicode(),
        help="""
        Further absolute paths that every session may read. Inside the sandbox only the system's
        programs, this Python and these are there. No effect without bubblewrap.
        """,
    ).tag(config=True)

    log_max_size = Unicode(
        "10m",
        help="""
        Size of a kernel's log at which its older half is dropped, at least `64k`.
        """,
    ).tag(config=True)

    @validate("log_max_size")
    def _check_log_size(self, proposal: Any) -> str:
        try:
            is_enough = parse_amount(MEM, proposal.value) >= MIN_LOG_BYTES
        except InvalidRequest as error:
            raise TraitError(f"ProcessEngine.log_max_size: {error}") from error
        if not is_enough:
            raise TraitError(f"ProcessEngine.log_max_size is {proposal.value}; at least 64k")
        return str(proposal.value)

    @default("state_dir")
    def _default_state_dir(self) -> str:
        return os.environ.get("BAI_HOME", ".bai")

    def __init__(self, shared: MutableMapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Shared by all engines of the Hub: stores the result of the probe.
        self._shared = {} if shared is None else shared

    async def address(self, plan: LaunchPlan) -> tuple[str, int]:
        return "127.0.0.1", free_port()

    async def start(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        sandbox = await self._sandbox(plan)
        words = list(plan.command or command or SINGLEUSER)
        url = _url_of(environ)

        def launch() -> Running:
            processes.kill_kernel(plan.kernel_id)
            if isinstance(sandbox, Bubblewrap):
                return self._launch_in(sandbox, plan, environ, words)
            return self._launch_bare(plan, environ, words)

        running = await _undone_if_cancelled(launch, plan.kernel_id)
        return replace(
            running,
            url=url,
            owner=plan.user,
            kernel_id=plan.kernel_id,
            hostname=plan.hostname,
        )

    async def poll(self, running: Running) -> Exit | None:
        if await asyncio.to_thread(processes.is_alive, running.pid, running.pid_started):
            return None
        # The sandbox may outlive its first process; kill everything that is left of the session.
        await asyncio.to_thread(self._end_rest, running)
        code = processes.read_status(self._status_file(_name_of(running))).get("exit-code")
        if code in (None, 128 + signal.SIGKILL):
            return Exit(code, EndReason.INTERRUPTED, "killed from outside")
        return Exit(code)

    async def read_log(self, running: Running, max_bytes: int) -> str:
        path = self._folder(_name_of(running)) / "session.log"
        return tail(await asyncio.to_thread(processes.read_tail, path, max_bytes), max_bytes)

    async def stop(self, running: Running, now: bool = False) -> Exit:
        grace = 0.0 if now else self.stop_grace_seconds
        if grace:
            await asyncio.to_thread(self._ask_to_end, running)
        deadline = asyncio.get_running_loop().time() + grace
        while asyncio.get_running_loop().time() < deadline:
            ended = await self.poll(running)
            if ended is not None:
                return ended
            await asyncio.sleep(STEP_SECONDS)
        await asyncio.to_thread(self._end_rest, running)
        return await self.poll(running) or Exit(None, EndReason.INTERRUPTED, "killed")

    async def remove(self, running: Running) -> None:
        """Remove the links to folders; the agent removes the rest once it has the log."""
        await asyncio.to_thread(_unlink_folders, self._folder(_name_of(running)) / "home")

    def _folder(self, name: str) -> Path:
        return Path(self.state_dir).absolute() / "sessions" / name

    def _status_file(self, name: str) -> Path:
        return self._folder(name) / "exit.json"

    async def _sandbox(self, plan: LaunchPlan) -> Bubblewrap | str:
        if self.isolation == "none":
            return "the Hub's configuration disables it"
        if "bubblewrap" not in self._shared:
            self._shared["bubblewrap"] = await asyncio.to_thread(probe, plan.uid, plan.gid)
        found: Bubblewrap | str = self._shared["bubblewrap"]
        if isinstance(found, str):
            if self.isolation == "bubblewrap":
                raise EngineError(f"{found}, and sessions may not start without it")
            self.log.warning("Session %s is not isolated: %s", plan.session_id, found)
        return found

    def _prepare(self, plan: LaunchPlan, mounts: Sequence[Mount]) -> tuple[Path, str]:
        """Create and return the session's folder and its home folder."""
        folder = self._folder(_name_of(plan))
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            given = [mount.source for mount in mounts if mount.target == HOME]
            home = given[0] if given else str(folder / "home")
            Path(home).mkdir(mode=0o700, exist_ok=True)
            self._status_file(_name_of(plan)).unlink(missing_ok=True)
        except OSError as error:
            raise EngineError(f"the session's folder cannot be made: {error.strerror}") from error
        for mount in mounts:
            if not os.path.exists(mount.source):
                raise EngineError(
                    f"the source of the mount at {mount.target} is missing on the machine"
                )
        return folder, home

    def _launch_in(
        self, sandbox: Bubblewrap, plan: LaunchPlan, hub: Mapping[str, str], command: list[str]
    ) -> Running:
        folder, home = self._prepare(plan, [m for m in plan.all_mounts if not m.subpath])
        environ = merged_environ(plan, hub, _own_environ(plan, HOME))
        status_file = folder / "exit.json"
        with ExitStack() as stack:
            opened = {m: stack.enter_context(_opened(m)) for m in plan.all_mounts if m.subpath}
            words = sandbox.arguments(plan, home, self.readable_paths, opened)
            files = stack.enter_context(handed_over(words, environ, plan.user, plan.cluster_hosts))
            status = stack.enter_context(open(status_file, "ab"))
            argv = [sandbox.program, "--args", str(files[-1])]
            argv += ["--json-status-fd", str(status.fileno()), "--", *command]
            descriptors = [*opened.values(), *files, status.fileno()]
            running = self._spawn(argv, plan, plan.marks, descriptors)
        init_pid = _wait_for_init(running.pid, status_file)
        return replace(running, init_pid=init_pid, init_started=processes.started_at(init_pid))

    def _launch_bare(self, plan: LaunchPlan, hub: Mapping[str, str], command: list[str]) -> Running:
        mounts = [_located(mount) for mount in plan.all_mounts]
        folder, home = self._prepare(plan, mounts)
        _link_folders(home, mounts)
        environ = merged_environ(plan, hub, _own_environ(plan, home))
        words = ["/bin/sh", "-c", STAND_IN, "bai", str(folder / "exit.json"), home, *command]
        return self._spawn(words, plan, environ, [])

    def _spawn(
        self, words: list[str], plan: LaunchPlan, environ: Mapping[str, str], files: list[int]
    ) -> Running:
        """Start a command in a process session of its own, with output to the kernel's log.

        It inherits the descriptors ``files`` and no others.
        """
        reading, log = os.pipe()
        try:
            log_pid = self._keep_log(self._folder(_name_of(plan)), reading)
            pid = _spawned(words, environ, log, files)
        except OSError as error:
            raise EngineError(f"{words[0]} cannot be started: {error.strerror}") from error
        finally:
            os.close(reading)
            os.close(log)
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

    def _keep_log(self, folder: Path, reading: int) -> int:
        """Start the log writer and return its pid; it ends when ``reading`` reaches its end."""
        size = str(parse_amount(MEM, self.log_max_size))
        words = [sys.executable, "-I", "-S", timed_log.__file__, str(folder / "session.log"), size]
        # Without the kernel's marks: it must not be killed with the kernel's processes.
        loader = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
        quiet = [(os.POSIX_SPAWN_OPEN, n, "/dev/null", os.O_WRONLY, 0) for n in (1, 2)]
        actions = [(os.POSIX_SPAWN_DUP2, reading, 0), *quiet]
        return os.posix_spawn(sys.executable, words, loader, file_actions=actions, setsid=True)

    def _ask_to_end(self, running: Running) -> None:
        # Signal the server itself, so that it can stop kernels and apps in order. Just after the
        # start it may not exist yet.
        parent = running.init_pid or running.pid
        deadline = time.monotonic() + SANDBOX_WAIT_SECONDS
        while not (servers := processes.children(parent)) and time.monotonic() < deadline:
            if not processes.is_alive(running.pid, running.pid_started):
                return
            time.sleep(0.005)
        processes.signal_all(servers, signal.SIGTERM)

    def _end_rest(self, running: Running) -> None:
        first = running.init_pid
        if first and processes.is_alive(first, running.init_started):
            # Killing the first process of the pid namespace kills all others in it.
            os.kill(first, signal.SIGKILL)
        if running.kernel_id:
            processes.kill_kernel(running.kernel_id)
        else:  # started by a version that saved no log_pid
            processes.kill_session(running.session_id)
        if running.log_pid:
            processes.outlast(running.log_pid, running.log_started, LOG_WAIT_SECONDS)


def _name_of(one: LaunchPlan | Running) -> str:
    """Return the name of a kernel's folder."""
    return folder_name(one.session_id, one.hostname)


async def _undone_if_cancelled(launch: Callable[[], Running], kernel_id: str) -> Running:
    task = asyncio.ensure_future(asyncio.to_thread(launch))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # A thread cannot be cancelled: wait for it, then undo its work.
        await asyncio.wait([task])
        await asyncio.to_thread(processes.kill_kernel, kernel_id)
        raise


def _spawned(words: list[str], environ: Mapping[str, str], output: int, files: list[int]) -> int:
    actions: list[tuple[int, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),  # type: ignore[list-item]
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
        *((os.POSIX_SPAWN_DUP2, file, file) for file in files),
    ]
    return os.posix_spawn(
        words[0],
        words,
        dict(environ),
        file_actions=actions,
        setsid=True,
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
    )


def _url_of(environ: Mapping[str, str]) -> str:
    """Return the URL at which the server will listen, from the address configured by the Hub."""
    if "JUPYTERHUB_SERVICE_URL" not in environ:
        return ""  # a sub kernel runs no server
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
    apps = find_spec("bai_labext")
    if apps is not None and apps.submodule_search_locations:
        environ["JUPYTER_CONFIG_PATH"] = str(Path(apps.submodule_search_locations[0]) / "config")
    return environ


def _wait_for_init(pid: int, status: Path) -> int:
    """Return the first process of a sandbox, 0 if it ended before reporting its pid."""
    deadline = time.monotonic() + SANDBOX_WAIT_SECONDS
    while time.monotonic() < deadline:
        found = processes.read_status(status)
        if "child-pid" in found:
            return found["child-pid"]
        if not processes.is_alive(pid, processes.started_at(pid)):
            return 0
        time.sleep(0.002)
    return 0


@contextmanager
def _opened(mount: Mount) -> Iterator[int]:
    """Yield a descriptor of the mounted directory of a folder.

    Raises
    ------
    EngineError
        If it no longer exists, or a link leads out of the folder.
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


def _located(mount: Mount) -> Mount:
    """Return a mount with the resolved path of its directory."""
    if not mount.subpath:
        return mount
    with _opened(mount) as directory:
        return replace(mount, source=os.readlink(f"/proc/self/fd/{directory}"), subpath="")


def _link_folders(home: str, mounts: Sequence[Mount]) -> None:
    """Link folders below ``home``: without a sandbox nothing can be mounted.

    Raises
    ------
    EngineError
        If a read-only folder would become writable, or lies outside the home folder.
    """
    for mount in mounts:
        if mount.target == HOME:
            continue
        advice = "install bubblewrap on this machine, or use a Docker resource group"
        if mount.read_only and not mount.is_own:
            raise EngineError(
                f"the folder at {mount.target} was granted read-only, which needs a sandbox: "
                f"{advice}",
                reason="not-isolated",
            )
        place = PurePosixPath(mount.target)
        if not place.is_relative_to(HOME):
            raise EngineError(
                f"the folder at {mount.target} is outside {HOME}, which needs a sandbox: {advice}",
                reason="not-isolated",
            )
        link = Path(home) / place.relative_to(HOME)
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        if link.exists():
            if not link.is_dir() or any(link.iterdir()):
                raise EngineError(f"there is already something at {mount.target}")
            link.rmdir()
        link.symlink_to(mount.source)


def _unlink_folders(home: Path) -> None:
    """Remove links at the top of a scratch home, so that a later tree walk stays inside it."""
    try:
        entries = list(home.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            entry.unlink(missing_ok=True)
