"""Remove secrets from the URLs in tornado's warnings in the Hub's log.

JupyterHub removes secrets from its own log lines. But when a handler rejects a request with a
message, tornado writes another line with the whole URL.
"""

from __future__ import annotations

import logging
import re

from jupyterhub import log as hub_log

# The parameters whose values JupyterHub's own log hides.
_SECRET_PARAMETER = re.compile(
    r"([?&][^=&\s]*(?:token|auth|key|code|state|_xsrf)[^=&\s]*=)[^&\s)]+", re.IGNORECASE
)


def without_secrets(text: str) -> str:
    """Return ``text`` with the values of secret URL parameters replaced by ``[secret]``."""
    return _SECRET_PARAMETER.sub(r"\1[secret]", text)


class _Scrub(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = without_secrets(record.getMessage()), ()
        return True


def scrub_signed_tokens() -> None:
    """Also hide the parameter ``sToken``, because JupyterHub's comparison of names is
    case-sensitive.
    """
    if "Token" not in hub_log.SCRUB_PARAM_KEYS:
        hub_log.SCRUB_PARAM_KEYS += ("Token",)


def scrub_tornado_log() -> None:
    """Hide secrets in all lines of tornado's general logger."""
    logging.getLogger("tornado.general").addFilter(_Scrub())
