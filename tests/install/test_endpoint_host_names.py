"""An endpoint at its own host name in an installation, with TLS as the manual describes."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.install.installation import (
    HOST,
    PROGRAM,
    RunningInstallation,
    free_port_range,
    run_bai_hub,
    write_certificate,
)
from tests.testbed import ComponentMissing
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

MANUAL = Path(__file__).parents[2] / "docs/gateway.md"
DOMAIN = "serve.example.org"
NAME = "chat"
PASSWORD = "Correct-horse-7"
SERVER = "echo hello > index.html; exec python3 -m http.server --bind 127.0.0.1 $PORT"
WAIT_SECONDS = 180


@contextmanager
def reverse_proxy(folder: Path, port: int, gateway: int) -> Iterator[Path]:
    """Run HAProxy with the configuration of the manual; yield its certificate."""
    if shutil.which("haproxy") is None:
        skip_or_fail("haproxy", ComponentMissing("HAProxy is missing (scripts/testbed install)"))
    certificate, key = write_certificate(folder, f"*.{DOMAIN}")
    both = folder / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    block = re.search(r"^    defaults\n(?:(?:    .*)?\n)+", MANUAL.read_text(), re.MULTILINE)
    assert block is not None
    text = re.sub("^    ", "", block[0], flags=re.MULTILINE)
    text = text.replace(":443", f"127.0.0.1:{port}").replace(
        "127.0.0.1:8092", f"127.0.0.1:{gateway}"
    )
    config = folder / "haproxy.cfg"
    config.write_text(text.replace(f"/etc/ssl/{DOMAIN}.pem", str(both)))
    with open(folder / "haproxy.log", "wb") as log:
        process = subprocess.Popen(["haproxy", "-db", "-f", config], stdout=log, stderr=log)
    try:
        yield certificate
    finally:
        process.kill()
        process.wait(20)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[RunningInstallation]:
    """An installation with a domain for endpoints; its port + 1 is free."""
    certificate, key = write_certificate(tmp_path / "tls")
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    first = free_port_range(7)
    folder, state = tmp_path / "etc", tmp_path / "state"
    options = ["--host", HOST, "--port", first + 5, "--internal-ports", first]
    options += ["--certificate", certificate, "--certificate-key", key, "--user", "root"]
    options += ["--engine", "process", "--state", state]
    options += ["--admin", "root-user", "--admin-email", "root@example.com"]
    options += ["--admin-password-file", tmp_path / "password"]
    run_bai_hub(PROGRAM, "init", folder, *map(str, options))
    settings = folder / "bai-hub.toml"
    text = settings.read_text()
    assert "[environment]" not in text
    settings.write_text(f'{text}\n[environment]\nBAI_GATEWAY_DOMAIN = "{DOMAIN}"\n')
    running = RunningInstallation(folder, state, first + 5, certificate, PASSWORD)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def test_endpoint_is_reached_at_its_own_host_name_with_tls(
    installation: RunningInstallation, tmp_path: Path
) -> None:
    port, gateway = installation.port + 1, installation.port - 1
    with reverse_proxy(tmp_path / "endpoints", port, gateway) as certificate:
        with installation.rest() as rest:
            spec = {
                "variant": "cmd",
                "command": SERVER,
                "health": {"path": "/index.html"},
                "request": {"resources": {"cpu": "1", "mem": "256m"}},
            }
            made = rest.post("/endpoints", json={"name": NAME, "settings": spec})
            assert made.status_code == 201, made.text
            assert made.json()["url"] == f"https://{NAME}.{DOMAIN}/"
            token = rest.post(f"/endpoints/{NAME}/tokens", json={"name": "t"}).json()["token"]
        context = ssl.create_default_context(cafile=str(certificate))
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(verify=context, timeout=60) as client:

            def get(host: str, path: str, **more: str) -> httpx.Response:
                """Send a request to a host name, without a name server."""
                url = f"https://127.0.0.1:{port}{path}"
                names = {"sni_hostname": host}
                return client.get(url, headers={"Host": host, **more}, extensions=names)

            host = f"{NAME}.{DOMAIN}"
            wait_until(
                lambda: get(host, "/index.html", **headers).status_code == 200,
                WAIT_SECONDS,
                "the endpoint",
            )
            assert get(host, "/index.html", **headers).text == "hello\n"
            assert get(host, "/index.html").status_code == 401
            # The Hub is not reachable at this name, and other names have no endpoint.
            assert get(host, "/hub/login", **headers).status_code == 404
            assert get(f"other.{DOMAIN}", "/index.html", **headers).status_code == 404
