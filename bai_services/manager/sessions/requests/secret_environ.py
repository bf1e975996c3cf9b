"""Secret environment variables: encrypted in the database, masked in responses."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from bai_services.core.errors import InvalidRequest

from ...accounts.keypair_secrets import KeypairSecrets

# Key that stores the names of the secret variables; no variable can have this name.
SECRET_NAMES = ".secret"
MASK = "********"


class SecretEnviron:
    """Encrypts the values of a session's secret variables with the manager's key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = KeypairSecrets(key)

    def encrypt(self, environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
        """Return the environment to store, with the values of ``names`` encrypted.

        Raises
        ------
        InvalidRequest
            If a variable in ``names`` is missing in ``environ``.
        """
        if not names:
            return dict(environ)
        for name in names:
            if name not in environ:
                raise InvalidRequest(
                    f"secret_environ contains {name[:80]!r}, which is missing in environ",
                    field="secret_environ",
                    variable=name[:80],
                )
        encrypted = {name: self._cipher.encrypt(environ[name]) for name in names}
        return {**environ, **encrypted, SECRET_NAMES: ",".join(sorted(set(names)))}

    def decrypt(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Return the decrypted environment of a session.

        Raises
        ------
        Unavailable
            If the manager's key has changed.
        """
        names = secret_names(stored)
        decrypted = {name: self._cipher.decrypt(stored[name]) for name in names}
        return {
            name: text for name, text in {**stored, **decrypted}.items() if name != SECRET_NAMES
        }

    def digests(self, environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
        """Return the environment for the digest of a request, with secret values as keyed hashes.

        The hashes are keyed, so that guessed values cannot be tested without the manager's key.
        """

        def digest(text: str) -> str:
            return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

        secret = {name: digest(environ[name]) for name in names if name in environ}
        return {**environ, **secret}


def secret_names(stored: Mapping[str, str]) -> list[str]:
    """Return the names of the secret variables of a stored environment."""
    return [name for name in stored.get(SECRET_NAMES, "").split(",") if name]


def masked(stored: Mapping[str, str]) -> dict[str, str]:
    """Return a stored environment with the secret values masked."""
    hidden = dict.fromkeys(secret_names(stored), MASK)
    return {name: text for name, text in {**stored, **hidden}.items() if name != SECRET_NAMES}
