"""What Jupyter reads in a session; the settings themselves are in `bai_labext.settings`."""

from bai_labext.settings import configure

configure(get_config())  # type: ignore[name-defined]  # noqa: F821  traitlets defines it
