"""Configuration that Jupyter loads in a session; the settings are in `bai_labext.settings`."""

from bai_labext.settings import configure

configure(get_config())  # type: ignore[name-defined]  # noqa: F821  traitlets defines it
