"""Configuration file that Jupyter loads in a session; see `bai_labext.settings`."""

from bai_labext.settings import configure

configure(get_config())  # type: ignore[name-defined]  # noqa: F821  traitlets defines it
