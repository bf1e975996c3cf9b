"""The docker engine of the spawner, with a real Docker daemon."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shlex
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import docker.errors
import pytest
from traitlets.config import Config

from bai_services.core.sessions.launch_plan import Injection, LaunchPlan
from bai_services.engines.base import EngineError, EngineUnreachable, Running
from bai_services.engines.docker import DockerEngine as Engine
from bai_services.engines.docker_container import container_name, with_device_requirements
from bai_services.engines.seccomp import own_profile, security_options
from bai_spawner.readiness import wait_until_ready
from tests.spawner import standin
from tests.spawner.plans import plan
from tests.spawner.standin import ask
from tests.testbed import images
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.wait import wait_until_async

# After a failed call, Docker's client leaves its socket to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("refused_sockets"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
    ),
]

Start = Callable[..., Any]
UID = 1500


@pytest.fixture
def shared() -> Iterator[dict[str, Any]]:
    parts: dict[str, Any] = {}
    yield parts
    if "docker" in parts:
        parts["docker"].close()


@pytest.fixture
def network(docker_engine: DockerEngine) -> Iterator[str]:
    made = docker_engine.client.networks.create(f"bai-u-test-{uuid.uuid4().hex[:8]}")
    yield made.name
    made.remove()


@pytest.fixture
def make_plan(docker_engine: DockerEngine, network: str, tmp_path: Path) -> Callable[..., Any]:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, UID, UID)
    image = images.base_image(docker_engine)

    def make(**changes: Any) -> LaunchPlan:
        mounts = [{"source": str(home), "target": "/home/work", "read_only": False}]
        injection = {"network": network, "mounts": mounts}
        base = {
            "engine": "docker",
            "endpoint": docker_engine.host,
            "image": image,
            "uid": UID,
            "gid": UID,
            "command": ["python3", "-c", standin.SOURCE],
        }
        injection |= changes.pop("injection", {})
        return plan(**{**base, "injection": injection, **changes})

    return make


@pytest.fixture
async def start_plan(
    docker_engine: DockerEngine, shared: dict[str, Any], network: str
) -> AsyncIterator[Callable[..., Any]]:
    engine = Engine(shared, stop_grace_seconds=3)
    names: list[str] = []

    async def start(given: LaunchPlan, wait: bool = True) -> tuple[Engine, Running]:
        names.append(container_name(given.session_id))
        ip, port = await engine.address(given)
        environ = {"JUPYTERHUB_SERVICE_URL": f"http://{ip}:{port}/user/ada/"}
        running = await engine.start(given, environ, [])
        if wait:
            ended = await wait_until_ready(
                f"{running.url}/user/ada/api", 30, 0.02, lambda: engine.poll(running)
            )
            assert ended is None, await engine.read_log(running, 9999)
        return engine, running

    yield start
    for name in names:
        try:
            docker_engine.client.api.remove_container(name, force=True, v=True)
        except docker.errors.NotFound:
            continue


async def test_container_has_its_limits_and_no_privileges(
    start_plan: Start, make_plan: Callable[..., LaunchPlan], docker_engine: DockerEngine
) -> None:
    given = make_plan(
        slots={"cpu": 500, "mem": 2**27, "cuda.shares": 250}, shared_memory_bytes=2**25
    )
    _, running = await start_plan(given)

    facts = docker_engine.client.api.inspect_container(running.container_id)
    host = facts["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 2**27
    assert host["NanoCpus"] == 500_000_000
    assert host["ShmSize"] == 2**25
    assert host["PidsLimit"] == 4096
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"]
    assert host["SecurityOpt"] == ["no-new-privileges:true", f"seccomp={own_profile()}"]
    assert not host["Privileged"] and not host["PortBindings"]
    assert facts["Config"]["Labels"]["bai.session-id"] == given.session_id
    assert facts["Config"]["Labels"]["bai.kernel-id"] == given.kernel_id

    # The values that a process in the container sees.
    _, (_, status) = await ask(running, "run", command="cat /proc/self/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["CapEff"] == fields["CapBnd"] == "0000000000000000"
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"
    assert await ask(running, "whoami") == (200, [UID, "/home/work", "main1"])
    _, (_, df) = await ask(running, "run", command="df -k /dev/shm | tail -1")
    assert df.split()[1] == str(2**25 // 1024)
    _, environ = await ask(running, "environ")
    assert environ["HOME"] == "/home/work"
    assert environ["BAI_SESSION_ID"] == given.session_id


# Prints the result of each system call: the name of its error, or "ok".
SYSTEM_CALLS = """
import ctypes, errno, json, multiprocessing, os, platform, socket, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
long = ctypes.c_long
SOCKET = {"x86_64": 41, "aarch64": 198}[platform.machine()]
UNSHARE = {"x86_64": 272, "aarch64": 97}[platform.machine()]
def call(number, *arguments):
    result = libc.syscall(long(number), *map(long, arguments))
    return "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]
buffer = ctypes.create_string_buffer(256)
results = {
    "io_uring_setup": call(425, 4, ctypes.addressof(buffer)),
    "io_uring_enter": call(426, 0, 1, 0, 0, 0),
    "io_uring_register": call(427, 0, 0, 0, 0),
    "AF_VSOCK": call(SOCKET, 40, 1, 0),
    # The kernel uses only 32 bits of the argument.
    "AF_VSOCK with high bits": call(SOCKET, 40 + 2**32, 1, 0),
    "AF_VSOCK, negative": call(SOCKET, 40 - 2**32, 1, 0),
    "user namespace": call(UNSHARE, 0x10000000),
    "AF_INET": call(SOCKET, 2, 1, 0),
    "AF_INET6": call(SOCKET, 10, 1, 0),
    "AF_NETLINK": call(SOCKET, 16, 3, 0),
    "socket pair": "ok" if socket.socketpair() else "",
}
threads = [threading.Thread(target=lambda: None) for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
subprocess.run(["true"], check=True)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
print(json.dumps(results))
"""


async def test_seccomp_profile_blocks_io_uring_vsock_and_user_namespaces(
    start_plan: Start, make_plan: Callable[..., LaunchPlan]
) -> None:
    _, running = await start_plan(make_plan())
    _, (code, text) = await ask(running, "run", command=f"python3 -c {shlex.quote(SYSTEM_CALLS)}")
    assert code == 0, text
    results = json.loads(text)
    blocked = {name for name, end in results.items() if end == "EPERM"}
    assert blocked == {
        *("io_uring_setup", "io_uring_enter", "io_uring_register"),
        *("AF_VSOCK", "AF_VSOCK with high bits", "AF_VSOCK, negative", "user namespace"),
    }
    assert {end for name, end in results.items() if name not in blocked} == {"ok"}


def test_seccomp_profile_is_configurable(tmp_path: Path) -> None:
    assert security_options("engine") == ["no-new-privileges:true"]
    mine = tmp_path / "mine.json"
    mine.write_text(' {"defaultAction": "SCMP_ACT_ALLOW"}\n')
    assert security_options(str(mine))[1] == 'seccomp={"defaultAction": "SCMP_ACT_ALLOW"}'


async def test_container_has_only_the_privileges_that_its_devices_require(
    start_plan: Start, make_plan: Callable[..., LaunchPlan], docker_engine: DockerEngine
) -> None:
    requirements = {"capabilities": ["IPC_LOCK"], "groups": ["4242"]}
    for given, caps, groups in ((requirements, 1 << 14, f"{UID} 4242"), ({}, 0, f"{UID}")):
        _, running = await start_plan(make_plan(injection=given))
        host = docker_engine.client.api.inspect_container(running.container_id)["HostConfig"]
        assert host["CapDrop"] == ["ALL"] and not host["Privileged"]
        assert (host["CapAdd"] or []) in (given.get("capabilities", []), ["CAP_IPC_LOCK"])
        assert (host["GroupAdd"] or []) == given.get("groups", [])
        assert not host["Ulimits"]

        # The values that a process in the container sees.
        _, (_, status) = await ask(running, "run", command="cat /proc/self/status")
        assert f"CapBnd:\t{caps:016x}\n" in status and "NoNewPrivs:\t1\n" in status
        assert await ask(running, "run", command="id -G") == (200, [0, f"{groups}\n"])


async def test_container_has_only_the_given_devices_variables_and_mounts(
    start_plan: Start, make_plan: Callable[..., LaunchPlan], tmp_path: Path
) -> None:
    async def inside(given: LaunchPlan) -> tuple[set[str], dict[str, str], set[str], str]:
        _, running = await start_plan(given)
        _, (_, nodes) = await ask(running, "run", command="ls -1 /dev")
        _, environ = await ask(running, "environ")
        _, (_, mounts) = await ask(running, "run", command="cut -d' ' -f2 /proc/mounts")
        _, (_, shared) = await ask(running, "run", command="ls /dev/shm")
        return set(nodes.split()), environ, set(mounts.split()), shared

    home = {"source": str(tmp_path / "home"), "target": "/home/work", "read_only": False}
    pipe, shm = tmp_path / "pipe", tmp_path / "shm"
    for folder in (pipe, shm):
        folder.mkdir(mode=0o777)
    (shm / "of-the-daemon").touch()
    plain_nodes, plain_environ, plain_mounts, plain_shared = await inside(make_plan())
    nodes, environ, mounts, shared = await inside(
        make_plan(
            environ={"NCCL_IB_DISABLE": "0"},
            injection={
                "environ": {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"},
                "defaults": {"NCCL_IB_DISABLE": "1", "NCCL_P2P_LEVEL": "NVL"},
                "device_nodes": [{"path": "/dev/full", "target": "/dev/accel7"}],
                "mounts": [
                    home,
                    {"source": str(pipe), "target": "/run/mps", "read_only": False},
                    {"source": str(shm), "target": "/dev/shm", "read_only": False},
                ],
            },
        )
    )
    assert nodes - plain_nodes == {"accel7"} and plain_nodes <= nodes
    own = {name: text for name, text in environ.items() if plain_environ.get(name) != text}
    varying = {name for name in own if name.startswith(("BAI_", "JUPYTERHUB_"))}
    assert {name: own[name] for name in own.keys() - varying} == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "NCCL_IB_DISABLE": "0",
        "NCCL_P2P_LEVEL": "NVL",
    }
    assert mounts - plain_mounts == {"/run/mps"}
    assert (plain_shared, shared) == ("", "of-the-daemon\n")


async def test_locked_memory_is_unlimited_if_devices_require_it(
    start_plan: Start, make_plan: Callable[..., LaunchPlan]
) -> None:
    given = make_plan(injection={"memlock": True})
    try:
        _, running = await start_plan(given)
    except EngineError as caught:
        # A daemon that may not raise hard limits rejects the start. Its error shows that it has
        # received the limit.
        assert f"rlimit type {resource.RLIMIT_MEMLOCK}: operation not permitted" in str(caught)
        assert resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] != resource.RLIM_INFINITY
    else:
        _, (_, limits) = await ask(running, "run", command="cat /proc/self/limits")
        (line,) = (line for line in limits.splitlines() if line.startswith("Max locked memory"))
        assert line.count("unlimited") == 2


def test_device_requirements_are_added_to_the_administrators_settings() -> None:
    nofile = {"name": "nofile", "soft": 64, "hard": 128}
    configured = {
        "ulimits": [nofile, {"name": "memlock", "soft": 1, "hard": 1}],
        "group_add": ["7"],
    }
    assert with_device_requirements(configured, Injection()) == configured
    made = with_device_requirements(
        configured, Injection(capabilities=("IPC_LOCK",), groups=("8",), memlock=True)
    )
    unlimited = {"Name": "memlock", "Soft": -1, "Hard": -1}
    assert made == {
        "cap_add": ["IPC_LOCK"],
        "group_add": ["7", "8"],
        "ulimits": [nofile, unlimited],
    }


async def test_launch_plan_overrides_conflicting_settings_of_the_administrator(
    docker_engine: DockerEngine, shared: dict[str, Any], make_plan: Callable[..., LaunchPlan]
) -> None:
    config = Config()
    nofile = {"name": "nofile", "soft": 64, "hard": 128}
    config.DockerSpawner.extra_host_config = {
        "cpu_shares": 512,
        "cap_drop": [],
        "init": False,
        "ulimits": [nofile],
    }
    config.DockerSpawner.extra_create_kwargs = {"labels": {"x": "y"}, "domainname": "{username}.x"}
    config.DockerSpawner.remove = False
    engine = Engine(shared, config=config)
    given = make_plan(labels={"braces": "{username} {0} {"}, name="{name}")
    running = await engine.start(given, {"JUPYTERHUB_SERVICE_URL": "http://0.0.0.0:8888/"}, [])
    try:
        facts = docker_engine.client.api.inspect_container(running.container_id)
    finally:
        await engine.remove(running)

    assert facts["HostConfig"]["Ulimits"] == [{"Name": "nofile", "Soft": 64, "Hard": 128}]
    assert facts["HostConfig"]["CpuShares"] == 512
    assert facts["HostConfig"]["CapDrop"] == ["ALL"] and facts["HostConfig"]["Init"] is True
    assert facts["HostConfig"]["AutoRemove"] is False
    assert facts["Config"]["Domainname"] == "ada.x"
    assert facts["Config"]["Labels"]["braces"] == "{username} {0} {"
    assert facts["Config"]["Labels"]["bai.session-id"] == given.session_id


async def test_container_over_its_memory_limit_is_killed(
    start_plan: Start, make_plan: Callable[..., LaunchPlan], tmp_path: Path
) -> None:
    pipe = tmp_path / "home" / "use-memory"
    # Opening a named pipe waits for its other end: the container is started before it is killed.
    os.mkfifo(pipe)
    os.chown(pipe, UID, UID)
    lines = [
        "open('/home/work/use-memory').read()",
        "x = bytearray(2**28)",
        "for i in range(0, 2**28, 4096): x[i] = 1",
    ]
    command = ["python3", "-c", "\n".join(lines)]
    given = make_plan(slots={"cpu": 1000, "mem": 2**26}, command=command)
    engine, running = await start_plan(given, False)
    await asyncio.to_thread(pipe.write_text, "")

    ended = await wait_until_async(lambda: engine.poll(running), 30, "the exit of the container")

    assert ended.code == 137
    assert "memory" in ended.text


async def test_folders_are_mounted_with_their_permissions(
    start_plan: Start, make_plan: Callable[..., LaunchPlan], tmp_path: Path
) -> None:
    for name in ("own", "granted"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        os.chown(tmp_path / name, UID, UID)
    mounts = [
        {"source": str(tmp_path / "own"), "target": "/home/work/data", "read_only": False},
        {"source": str(tmp_path / "granted"), "target": "/home/work/papers", "read_only": True},
    ]
    _, running = await start_plan(make_plan(mounts=mounts))

    assert (await ask(running, "write", path="/home/work/data/new"))[0] == 200
    assert (tmp_path / "own" / "new").stat().st_uid == UID
    assert await ask(running, "read", path="/home/work/papers/file") == (200, "granted")
    status, error = await ask(running, "write", path="/home/work/papers/new")
    assert status == 418 and "Read-only" in error
    assert (await ask(running, "write", path="/home/work/scratch"))[0] == 200


async def test_stop_sends_sigterm_and_keeps_the_log_until_removal(
    start_plan: Start,
    make_plan: Callable[..., LaunchPlan],
    docker_engine: DockerEngine,
    shared: dict[str, Any],
) -> None:
    _, running = await start_plan(make_plan())
    await ask(running, "say", text="a line of the log")
    later = Engine(shared, stop_grace_seconds=3)
    loaded = Running.from_state(json.loads(json.dumps(running.to_state())))

    assert await later.poll(loaded) is None
    ended = await later.stop(loaded)

    assert ended.code == 143
    assert "a line of the log" in await later.read_log(loaded, 10_000)
    await later.remove(loaded)
    await later.remove(loaded)
    assert (await later.poll(loaded)).text == "was removed by something other than the Hub"
    with pytest.raises(docker.errors.NotFound):
        docker_engine.client.api.inspect_container(running.container_id)


async def test_container_that_ignores_sigterm_is_killed_after_the_grace_period(
    start_plan: Start, make_plan: Callable[..., LaunchPlan]
) -> None:
    words = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]
    engine, running = await start_plan(make_plan(command=words), False)

    async def is_ready() -> bool:
        return "ready" in await engine.read_log(running, 1000)

    await wait_until_async(is_ready, 10, "the signal handler to be installed")
    assert (await engine.stop(running)).code == 137


async def test_second_start_replaces_the_container_of_the_first(
    start_plan: Start, make_plan: Callable[..., LaunchPlan]
) -> None:
    given = make_plan()
    _, first = await start_plan(given)
    engine, second = await start_plan(given)

    assert first.container_id != second.container_id
    assert (await engine.poll(first)).text == "was removed by something other than the Hub"
    assert await engine.poll(second) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"image": "bai-no-such:image"}, "image-missing", id="missing image"),
        pytest.param(
            {"mounts": [{"source": "/no/such", "target": "/home/work/x", "read_only": False}]},
            "engine-failed",
            id="missing folder",
        ),
    ],
)
async def test_failed_start_leaves_no_container(
    start_plan: Start,
    make_plan: Callable[..., LaunchPlan],
    docker_engine: DockerEngine,
    changes: dict[str, Any],
    reason: str,
) -> None:
    given = make_plan(**changes)
    with pytest.raises(EngineError) as caught:
        await start_plan(given, False)
    assert caught.value.reason == reason
    assert containers_of(docker_engine, given) == []


def containers_of(docker_engine: DockerEngine, given: LaunchPlan) -> list[Any]:
    label = f"bai.session-id={given.session_id}"
    # Ignore containers that are removed while they are listed.
    return list(
        docker_engine.client.containers.list(
            all=True, filters={"label": label}, ignore_removed=True
        )
    )


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        pytest.param(["sh", "-c", "echo oh; exit 3"], 3, "oh", id="exits at once"),
        pytest.param(["/no/such/program"], 127, "/no/such/program", id="missing program"),
    ],
)
async def test_exit_at_start_is_reported_with_code_and_output(
    start_plan: Start,
    make_plan: Callable[..., LaunchPlan],
    words: list[str],
    code: int,
    printed: str,
) -> None:
    try:
        engine, running = await start_plan(make_plan(command=words), False)
    except EngineError as error:  # if the container exits before it has an address
        assert f"code {code}" in str(error) and printed in str(error)
        assert error.reason == "exited-at-start"
    else:
        ended = await wait_until_async(
            lambda: engine.poll(running), 10, "the exit of the container"
        )
        assert ended.code == code
        assert printed in await engine.read_log(running, 1000)


async def test_cancelled_start_leaves_no_container(
    start_plan: Start, make_plan: Callable[..., LaunchPlan], docker_engine: DockerEngine
) -> None:
    given = make_plan()
    task = asyncio.create_task(start_plan(given, False))
    await wait_until_async(
        lambda: containers_of(docker_engine, given), 20, "the container to exist"
    )
    task.cancel()
    await asyncio.wait([task])

    assert containers_of(docker_engine, given) == []


async def test_unreachable_engine_is_an_error(shared: dict[str, Any], tmp_path: Path) -> None:
    engine = Engine(shared)
    running = Running(
        "docker", str(uuid.uuid4()), "", endpoint=f"unix://{tmp_path}/away.sock", container_id="x"
    )
    for call in (engine.poll(running), engine.stop(running)):
        with pytest.raises(EngineUnreachable, match="cannot be reached"):
            await call
    assert await engine.read_log(running, 100) == ""
    with pytest.raises(EngineUnreachable):
        await engine.start(plan(endpoint=running.endpoint, engine="docker"), {}, [])


async def test_silent_endpoint_does_not_block_others(
    docker_engine: DockerEngine, tmp_path: Path, shared: dict[str, Any]
) -> None:
    """Thirty calls wait for one endpoint; they do not delay a call to another endpoint."""
    path = str(tmp_path / "silent.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen(64)
        engine = Engine(shared, call_timeout_seconds=1)
        running_ones = [
            Running("docker", "s", "", f"user{n}", f"unix://{path}", "x") for n in range(30)
        ]
        tasks = [asyncio.create_task(engine.poll(running)) for running in running_ones]
        other_running = Running("docker", "t", "", "eve", docker_engine.host, "no-such-container")

        ended = await asyncio.wait_for(engine.poll(other_running), 0.9)

        assert ended is not None and ended.text == "was removed by something other than the Hub"
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, EngineUnreachable) for result in done)
        assert threading.active_count() < 100
