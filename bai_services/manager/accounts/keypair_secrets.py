"""Generate keypairs and encrypt their secret keys."""

from __future__ import annotations

import secrets
import string

from cryptography.fernet import Fernet, InvalidToken

from bai_services.core.accounts.records import NewKeypair
from bai_services.core.errors import Unavailable

ACCESS_KEY_LENGTH = 20
SECRET_KEY_LENGTH = 40
_ACCESS = string.ascii_uppercase + string.digits
_SECRET = string.ascii_letters + string.digits + "-_"


def new_keypair() -> NewKeypair:
    return NewKeypair(
        "AK" + "".join(secrets.choice(_ACCESS) for _ in range(ACCESS_KEY_LENGTH - 2)),
        new_secret_key(),
    )


def new_secret_key() -> str:
    return "".join(secrets.choice(_SECRET) for _ in range(SECRET_KEY_LENGTH))


class KeypairSecrets:
    """Encrypts secret keys with the manager's key (``BAI_KEY_FILE``)."""

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    def encrypt(self, secret_key: str) -> str:
        return self._fernet.encrypt(secret_key.encode()).decode()

    def decrypt(self, encrypted: str) -> str:
        """Return the secret key.

        Raises
        ------
        Unavailable
            If the secret key was not encrypted with the manager's current key.
        """
        try:
            return self._fernet.decrypt(encrypted.encode()).decode()
        except InvalidToken:
            raise Unavailable(
                "the keypairs were encrypted with a different key file; "
                "restore that file (BAI_KEY_FILE)"
            ) from None
