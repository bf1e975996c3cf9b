"""Environment variables marked secret: encrypted in the database, masked in every answer."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from bai_services.core.errors import InvalidRequest

from ...accounts.keypair_secrets import KeypairSecrets

# Key under which the names of the secret variables are stored; no variable can have this name.
SECRET_NAMES = ".secret"
MASK = "********"


class SecretEnviron:
    """Encrypts the values of a session's secret variables with the manager's key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = KeypairSecrets(key)

    def seal(self, environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
        """Return the environment to store, with the values of ``names`` encrypted.

        Raises
        ------
        InvalidRequest
            If the environment has no such variable.
        """
        if not names:
            return dict(environ)
        for name in names:
            if name not in environ:
                raise InvalidRequest(
                    f"secret_environ names {name[:80]!r}, which environ does not have",
                    field="secret_environ",
                    variable=name[:80],
                )
        sealed = {name: self._cipher.encrypt(environ[name]) for name in names}
        return {**environ, **sealed, SECRET_NAMES: ",".join(sorted(set(names)))}

    def open(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Return the decrypted environment of a session.

        Raises
        ------
        Unavailable
            If the manager's key has changed.
        """
        names = secret_names(stored)
        opened = {name: self._cipher.decrypt(stored[name]) for name in names}
        return {name: text for name, text in {**stored, **opened}.items() if name != SECRET_NAMES}

    def digests(self, environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
        """Return the environment for the digest of a request: guessing a value needs the manager's
        key.
        """

        def digest(text: str) -> str:
            return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

        secret = {name: digest(environ[name]) for name in names if name in environ}
        return {**environ, **secret}


def secret_names(stored: Mapping[str, str]) -> list[str]:
    """Return the names of the secret variables of a stored environment."""
    return [name for name in stored.get(SECRET_NAMES, "").split(",") if name]


def masked(stored: Mapping[str, str]) -> dict[str, str]:
    """Return a stored environment with secret values masked, for everybody who may read the
    session.
    """
    hidden = dict.fromkeys(secret_names(stored), MASK)
    return {name: text for name, text in {**stored, **hidden}.items() if name != SECRET_NAMES}
