"""Generated units, Compose, Stack and proxy files are valid for the programs that read them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from bai_services.core.installation.settings import EngineKind, Installation, StorageHost, Tls
from bai_services.core.installation.systemd import Component, Program, unit_name, units
from bai_services.engines.docker_bridge import bridge_address
from bai_services.install.components import environment, internal_address
from bai_services.install.folder import changed_files
from bai_services.install.setup import generated_files, write_files
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.ports import free_port

# The score of `systemd-analyze security`: from 0 (confined) to 10.
MAX_EXPOSURE = {
    Component.PROXY: 3.0,
    Component.HUB: 3.0,
    Component.MANAGER: 6.5,
    Component.GATEWAY: 3.0,
    Component.AGENT: 8.5,
}


def needs(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def installation_in(folder: Path, **values: object) -> Installation:
    files = {}
    if values.get("tls", Tls.CERTIFICATE) is Tls.CERTIFICATE:
        files = {"certificate": "/etc/ssl/hub.pem", "certificate_key": "/etc/ssl/hub.key"}
    return Installation(
        host="hub.example.org", state=str(folder / "state"), service_user="root",
        **files, **values,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("engine", list(EngineKind))
def test_systemd_accepts_the_units(tmp_path: Path, engine: EngineKind) -> None:
    analyze = needs("systemd-analyze")
    storage = (StorageHost("local", "local", "/srv/folders"),)
    installation = installation_in(tmp_path, engine=engine, storage=storage)
    for name, text in units(installation, Program("/bin/true", "/etc/bai-hub")).items():
        (tmp_path / name).write_text(text)
    names = [unit_name(component) for component in Component]
    # Ignore errors of required units, because the units of other packages may be missing here.
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no"]
        + [str(tmp_path / name) for name in names],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "bai-hub" not in done.stderr


def test_the_units_are_confined(tmp_path: Path) -> None:
    analyze = needs("systemd-analyze")
    installation = installation_in(tmp_path, engine=EngineKind.DOCKER)
    for name, text in units(installation, Program("/bin/true", "/etc/bai-hub")).items():
        (tmp_path / name).write_text(text)
    exposures = {}
    for component in Component:
        done = subprocess.run(
            [analyze, "security", "--offline=true", "--no-pager"]
            + [str(tmp_path / unit_name(component))],
            capture_output=True,
            text=True,
        )
        found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
        assert found is not None, done.stdout + done.stderr
        exposures[component] = float(found[1])
    assert all(exposures[c] <= MAX_EXPOSURE[c] for c in Component), exposures


@pytest.mark.parametrize("component", [Component.PROXY, Component.GATEWAY])
def test_exposed_components_read_only_their_secrets(tmp_path: Path, component: Component) -> None:
    password = str(tmp_path / "password")
    installation = installation_in(
        tmp_path, database="postgresql://bai@db/bai", database_password_file=password
    )
    environment(installation, tmp_path, component, "127.0.0.1")
    secrets = sorted(str(path) for path in (tmp_path / "state" / "secrets").iterdir())
    lines = units(installation, Program("/bin/true", "/etc/bai-hub"))[unit_name(component)]
    assert {
        f"TemporaryFileSystem={tmp_path}/state:ro",
        f"BindReadOnlyPaths={' '.join(secrets)}",
        f"InaccessiblePaths=-{password}",
    } <= set(lines.splitlines())
    assert "ReadWritePaths" not in lines


def test_compose_accepts_the_file(tmp_path: Path) -> None:
    files = generated_files(installation_in(tmp_path), tmp_path)
    content = yaml.safe_load(files["compose.yaml"])
    assert set(content["services"]) == set(Component)
    compose = needs("docker-compose")
    # Compose version 1 has no top-level name and requires a version.
    content = {"version": "3.8", **{k: v for k, v in content.items() if k != "name"}}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [compose, "-f", tmp_path / "compose.yaml", "config", "--quiet"],
        capture_output=True,
        text=True,
        env={**os.environ, "DOCKER_HOST": "unix:///no/such/socket"},
    )
    assert done.returncode == 0, done.stderr


def test_components_without_access_to_docker_have_the_same_address(
    tmp_path: Path, docker_engine: DockerEngine
) -> None:
    """The containers and units of proxy, manager and gateway have no access to the engine."""
    files = generated_files(installation_in(tmp_path), tmp_path)
    services = yaml.safe_load(files["compose.yaml"])["services"]
    socket = "/var/run/docker.sock:/var/run/docker.sock"
    assert {name for name, one in services.items() if socket in one["volumes"]} == {"hub", "agent"}
    addresses = {
        internal_address(installation_in(tmp_path, environment={"DOCKER_HOST": host}))
        for host in (docker_engine.host, f"tcp://127.0.0.1:{free_port()}")
    }
    assert addresses == {bridge_address(docker_engine.client)}


def test_swarm_accepts_the_stack(tmp_path: Path) -> None:
    docker = needs("docker")
    (tmp_path / "stack.yaml").write_text(
        generated_files(installation_in(tmp_path), tmp_path)["stack.yaml"]
    )
    done = subprocess.run(
        [docker, "stack", "config", "-c", tmp_path / "stack.yaml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(Component)


def test_caddy_accepts_the_file(tmp_path: Path) -> None:
    caddy = needs("caddy")
    installation = installation_in(tmp_path, tls=Tls.CADDY, acme_email="admin@example.org")
    path = tmp_path / "Caddyfile"
    path.write_text(generated_files(installation, tmp_path)["Caddyfile"])
    done = subprocess.run(
        [caddy, "validate", "--config", path, "--adapter", "caddyfile"],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_file_is_kept(tmp_path: Path) -> None:
    from bai_services.core.errors import Conflict

    installation = installation_in(tmp_path)
    assert write_files(installation, tmp_path, overwrite=False)
    assert write_files(installation, tmp_path, overwrite=False) == []
    unit = tmp_path / "systemd" / "bai-hub.service"
    unit.write_text(unit.read_text() + "# changed by hand\n")
    other = installation_in(tmp_path, port=8443)
    with pytest.raises(Conflict) as caught:
        write_files(other, tmp_path, overwrite=False)
    assert "bai-hub.service" in caught.value.message
    assert "8443" not in (tmp_path / "systemd" / "bai-hub-proxy.service").read_text()
    assert write_files(other, tmp_path, overwrite=True)
    assert "changed by hand" in (tmp_path / "systemd" / "bai-hub.service.orig").read_text()
    assert changed_files(tmp_path, generated_files(other, tmp_path)) == []
