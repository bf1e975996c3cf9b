"""Configuration of the Hub of an installation, which `bai-hub run hub` uses."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from bai_auth.log_scrubbing import scrub_tornado_log
from bai_services import tracing
from bai_services.branding import read_brand
from bai_services.core.installation.settings import Tls
from bai_services.hub_settings import MANAGER_ROLE, configure_pages_and_sessions, prepare_sqlite
from bai_services.install.components import addresses
from bai_services.install.folder import home_of, hub_database_url, read_settings_file
from bai_spawner.hub_patches import apply_hub_patches

c = get_config()  # type: ignore[name-defined]  # noqa: F821  # defined by traitlets

installation = read_settings_file(Path(os.environ["BAI_INSTALLATION"]))
home = home_of(installation)
# Without `address.managers`, the manager has the address of this machine.
address = installation.internal or urlsplit(os.environ["BAI_MANAGER_URL"]).hostname or "127.0.0.1"
urls = addresses(installation, address)

# --- Addresses -------------------------------------------------------------------------------
scheme = "https" if installation.tls is Tls.CERTIFICATE else "http"
c.JupyterHub.bind_url = f"{scheme}://{installation.proxy_bind}:{installation.proxy_port}"
c.JupyterHub.public_url = installation.public_url
c.JupyterHub.hub_ip = address
c.JupyterHub.hub_port = installation.ports.hub

# --- State -----------------------------------------------------------------------------------
if installation.uses_sqlite:
    c.JupyterHub.db_url = prepare_sqlite(home.database("jupyterhub.sqlite"))
else:
    c.JupyterHub.db_url = hub_database_url(installation)
c.JupyterHub.upgrade_db = True
c.JupyterHub.cookie_secret_file = str(home.path / "secrets" / "cookie")
tracing.set_up("bai-jupyterhub", os.environ)
scrub_tornado_log()
apply_hub_patches()

# --- Proxy, which is a separate service --------------------------------------------------------
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = urls.proxy_api
c.ConfigurableHTTPProxy.auth_token = home.secret("proxy").read_text()

# --- Sign-in, pages, sessions ----------------------------------------------------------------
configure_pages_and_sessions(c, read_brand(os.environ))
if codes := os.environ.get("BAI_ONE_TIME_CODES"):
    c.BaiAuthenticator.one_time_codes = codes

# --- Services, which are separate processes ----------------------------------------------------
c.JupyterHub.services = [
    {
        "name": "bai",
        "url": urls.manager.removesuffix("/services/bai"),
        "api_token": home.secret("manager-api-token").read_text(),
        # The service is part of the same product, so users are not asked for consent.
        "oauth_no_confirm": True,
        "timeout": 60,
        "display": False,
    },
    {
        "name": "bai-serve",
        "url": urls.gateway,
        "api_token": home.secret("gateway-api-token").read_text(),
        "timeout": 60,
        "display": False,
    },
]
c.JupyterHub.load_roles = [MANAGER_ROLE]

# --- Further settings ------------------------------------------------------------------------
if installation.hub_config:
    load_subconfig(installation.hub_config)  # type: ignore[name-defined]  # noqa: F821
