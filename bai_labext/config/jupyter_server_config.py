"""Configuration file that Jupyter loads in a session; see `bai_labext.settings`."""

import os

from bai_labext import session_setup
from bai_labext.settings import configure

# Do this before the server listens, so that the Hub's readiness check waits for the end of the
# bootstrap scripts.
session_setup.apply(os.environ)
configure(get_config())  # type: ignore[name-defined]  # noqa: F821  traitlets defines it
