"""Accounts at OpenID providers, and the rules for signing in with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

# Reasons for rejecting a sign-in with an external identity.
NOT_LINKED = "not-linked"
NAME_TAKEN = "account-exists"
NO_EMAIL = "no-verified-email"
INVALID_NAME = "invalid-name"
# Maximum lifetime of a sign-in token that another site has signed.
MAX_SIGNED_TOKEN_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalUser:
    """The claims of a provider about a user.

    Only ``issuer`` and ``subject`` identify the user. ``provider`` is the name in the
    configuration. The other fields are used for new accounts; the e-mail address is also used to
    link accounts (``ProviderRules.links_email``).
    """

    provider: str
    issuer: str
    subject: str
    username: str = ""
    email: str = ""
    is_email_verified: bool = False
    full_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRules:
    """The operator's rules for a provider.

    ``links_email``: a verified e-mail address links the identity to the account with that address,
    if the account has the role ``user``. ``skips_code``: no one-time code is required, because the
    provider itself asks for a second factor.
    """

    creates_accounts: bool = False
    domain: str = ""
    projects: Sequence[str] = ()
    links_email: bool = False
    skips_code: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity at a provider that is linked to an account."""

    id: str
    provider: str
    issuer: str
    subject: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Identities:
    items: Sequence[Identity]


@dataclass(frozen=True, slots=True)
class OwnIdentities:
    """The caller's linked identities; ``has_password``: the caller has a password, which a new link
    requires.
    """

    items: Sequence[Identity]
    has_password: bool
