"""A gRPC model server on both engines, called through a second gateway, which runs HAProxy."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import httpx
import pytest

from tests.e2e.sessions import checked
from tests.e2e.test_models import deployed, script
from tests.e2e.test_serving import REVOKE_SECONDS
from tests.hub import ROOT, RunningHub
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

NAME = "e2e-grpc"
PREFIX = f"/services/bai-serve/{NAME}/test.Model"
COMMAND = "exec python3 $BAI_MODEL_PATH/grpc_server.py"
# The session image has no gRPC: a container unpacks it from the model folder into /tmp, because the
# model folder is read-only.
UNPACK = (
    "mkdir /tmp/packages; tar -xf $BAI_MODEL_PATH/packages.tar -C /tmp/packages; "
    "export PYTHONPATH=/tmp/packages; "
)
PACKAGES = ("grpc", "grpc_health", "google", "typing_extensions.py")


@contextmanager
def haproxy_gateway(hub: RunningHub) -> Iterator[int]:
    """Run another gateway of a demo, with HAProxy; yield its port."""
    environment = {
        **{key: text for key, text in os.environ.items() if not key.startswith("BAI_")},
        "BAI_MANAGER_URL": hub.api.removesuffix("/api/v1"),
        "BAI_GATEWAY_TOKEN_FILE": str(hub.home / "secrets" / "gateway-token"),
        "BAI_GATEWAY_PORT": "0",
        "BAI_GATEWAY_ENGINE": "haproxy",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "bai_services.gateway"],
        cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            line = ""
            while "listens" not in line:
                line = process.stderr.readline()
                assert line, process.wait()
            yield int(line.rsplit(":", 1)[1])
        finally:
            process.terminate()


def packages() -> bytes:
    """Return an archive of the packages that the server needs in a container."""
    site = Path(grpc.__file__).parents[1]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as made:
        for name in PACKAGES:
            made.add(site / name, name)
    return archive.getvalue()


def test_official_client_reaches_a_replica_through_haproxy(any_hub: RunningHub) -> None:
    if shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None:
        skip_or_fail("haproxy", "HAProxy is not installed (scripts/testbed install)")
    files, command = {"grpc_server.py": script("grpc_server.py")}, COMMAND
    if any_hub.engine == "docker":
        files["packages.tar"] = packages()
        command = UNPACK + COMMAND
    settings = {"variant": "cmd", "protocol": "grpc", "command": command}
    with (
        any_hub.rest("user") as rest,
        deployed(rest, NAME, files, settings=settings) as token,
        haproxy_gateway(any_hub) as port,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        echo, count = channel.unary_unary(f"{PREFIX}/Echo"), channel.unary_stream(f"{PREFIX}/Count")
        metadata = (("authorization", f"Bearer {token}"),)

        def code_of(text: str) -> grpc.StatusCode:
            try:
                echo(b"x", metadata=(("authorization", f"Bearer {text}"),), timeout=10)
            except grpc.RpcError as error:
                code: grpc.StatusCode = error.code()
                return code
            return grpc.StatusCode.OK

        wait_until(lambda: code_of(token) is grpc.StatusCode.OK, 30, "a response")
        large = os.urandom(1_000_000)
        assert echo(large, metadata=metadata, timeout=30) == large
        numbers = list(count(b"1000", metadata=metadata, timeout=30))
        assert numbers == [b"%d" % number for number in range(1000)]
        assert code_of("wrong") is grpc.StatusCode.UNAUTHENTICATED
        # The gateway of the demo has no HAProxy, so it rejects gRPC.
        url, headers = any_hub.url + f"{PREFIX}/Echo", {"Authorization": f"Bearer {token}"}
        assert httpx.post(url, headers=headers).status_code == 501
        counted = lambda: checked(rest.get(f"/endpoints/{NAME}"), 200)["requests"] >= 3  # noqa: E731
        wait_until(counted, 30, "the report of the gateway")
        ticks = channel.unary_stream(f"{PREFIX}/Tick")(b"", metadata=metadata)
        assert next(ticks) == b"tick"
        checked(rest.delete(f"/endpoints/{NAME}/tokens/app"), 204)
        began = time.monotonic()
        with pytest.raises(grpc.RpcError):
            for _ in ticks:
                assert time.monotonic() - began < REVOKE_SECONDS
        wait_until(lambda: code_of(token) is grpc.StatusCode.UNAUTHENTICATED, 10, "the revocation")
