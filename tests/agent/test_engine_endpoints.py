"""Docker engines of other machines: TLS with client certificates, and SSH."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bai_services.docker_clients import DockerClients, EngineUnavailable
from tests.install.installation import write_certificate
from tests.testbed import ComponentMissing
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.ports import free_port
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.docker


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[None]:
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def version_at(endpoint: str, tls_folder: str = "") -> str:
    """Return the version of an engine, "" if it cannot be reached."""
    clients = DockerClients(10, tls_folder)
    try:
        return str(clients.call(endpoint, lambda client: client.version()["Version"]))
    except EngineUnavailable:
        return ""
    finally:
        clients.close()


def client_folder(folder: Path, server: Path, pair: tuple[Path, Path]) -> str:
    """Write the files of a client that trusts the server's certificate."""
    folder.mkdir()
    for name, source in (("ca.pem", server), ("cert.pem", pair[0]), ("key.pem", pair[1])):
        shutil.copy(source, folder / name)
    return str(folder)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path, because the path of a Unix socket has at most 107 characters."""
    with TemporaryDirectory(prefix="bai-") as folder:
        yield Path(folder)


@pytest.fixture
def bridge() -> Iterator[str]:
    """A bridge for a second engine.

    With ``--bridge=none``, an engine would delete ``docker0``, the bridge of the first engine.
    """
    name = "bai-tls0"
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "address", "add", "198.51.100.1/30", "dev", name], check=True)
        yield name
    finally:
        subprocess.run(["ip", "link", "delete", name], check=True)


def test_tls_endpoint_needs_the_certificate_of_the_client(
    docker_engine: DockerEngine,
    tmp_path: Path,
    short_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    bridge: str,
) -> None:
    # The certificates of other services must not replace those of the engine.
    others = str(write_certificate(tmp_path / "others")[0])
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(variable, others)
    if (program := shutil.which("dockerd")) is None:
        skip_or_fail("docker", ComponentMissing("dockerd is missing (scripts/testbed install)"))
    server, key = write_certificate(tmp_path / "server")
    pairs = [write_certificate(tmp_path / name) for name in ("known", "unknown")]
    port = free_port()
    words = [program, "--data-root", tmp_path / "data", "--exec-root", short_folder]
    words += ["-p", tmp_path / "pid", "-H", f"tcp://localhost:{port}", f"--bridge={bridge}"]
    words += ["--iptables=false", "--tlsverify", "--tlscacert", pairs[0][0]]
    words += ["--tlscert", server, "--tlskey", key]
    known, unknown = (
        client_folder(tmp_path / f"client-{n}", server, pair) for n, pair in enumerate(pairs)
    )
    endpoint = f"tcp://localhost:{port}"
    with running(list(map(str, words)), tmp_path):
        wait_until(lambda: version_at(endpoint, known), 60, "the engine to respond")
        assert version_at(endpoint, unknown) == ""
        assert version_at(endpoint) == ""
        # A client that trusts another server does not connect.
        shutil.copy(pairs[1][0], Path(known) / "ca.pem")
        assert version_at(endpoint, known) == ""
    # Otherwise no container of the first engine could start.
    assert Path("/sys/class/net/docker0").exists()


def test_ssh_endpoint_needs_a_known_host_and_a_key(
    docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (program := shutil.which("sshd", path="/usr/sbin:/usr/bin")) is None:
        skip_or_fail("docker", ComponentMissing("sshd is missing (scripts/testbed install)"))
    for name in ("host", "client"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(words, check=True)
    client_key = (tmp_path / "client.pub").read_text()
    # The only command that this key may run.
    dial = f"docker -H {docker_engine.host} system dial-stdio"
    authorized = tmp_path / "authorized_keys"
    authorized.write_text(f'command="{dial}" {client_key}')
    port = free_port()
    config = tmp_path / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nStrictModes no\n"
        f"AuthorizedKeysFile {authorized}\nPidFile none\nUsePAM no\nPermitRootLogin yes\n"
    )
    # The program takes keys and known hosts from the home of its user.
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    shutil.copy(tmp_path / "client", home / ".ssh" / "id_ed25519")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    endpoint = f"ssh://root@127.0.0.1:{port}"
    Path("/run/sshd").mkdir(exist_ok=True)
    with running([program, "-D", "-e", "-f", str(config)], tmp_path):
        host_key = " ".join((tmp_path / "host.pub").read_text().split()[:2])
        wait_until(lambda: "Server listening" in (tmp_path / "log").read_text(), 20, "sshd")
        assert version_at(endpoint) == ""
        (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
        assert version_at(endpoint) == docker_engine.client.version()["Version"]
        authorized.write_text("")
        assert version_at(endpoint) == ""
