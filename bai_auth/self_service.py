"""Settings of self-service pages: password reset, sign-up and account deletion."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.utils import url_path_join
from traitlets import Bool, List, TraitError, Unicode
from traitlets.config import LoggingConfigurable

from bai_services.core import errors
from bai_services.service_client import ServiceClient

# Time for which the Hub caches whether the manager can send mails.
MAIL_CACHE_SECONDS = 30.0
# Time after which the Hub queries an unavailable manager again.
FAILURE_CACHE_SECONDS = 3.0
TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Document:
    """A URL (http or https), or the text itself."""

    text: str

    @property
    def is_link(self) -> bool:
        return self.text.startswith(("https://", "http://")) and not any(
            char.isspace() for char in self.text
        )


class SelfService(LoggingConfigurable):
    """Pages for a forgotten password, sign-up and account deletion.

    All pages are disabled by default.
    """

    public_url = Unicode(
        help="""
        URL of the Hub for the links in mails, for example ``https://hub.example.org/``.

        Defaults to ``JupyterHub.public_url``. It is required by all settings that send mails. The
        address in a request is never used: a forged one would lead users to another site.
        """,
    ).tag(config=True)

    password_reset = Bool(
        False,
        help="""
        Whether users who have forgotten their password can get a link by e-mail to set a new one.

        The link on the sign-in page appears only if the manager can send mails
        (``BAI_MAIL_HOST``). Superadmins, monitors and accounts without a password cannot use it.
        """,
    ).tag(config=True)

    sign_up = Bool(
        False,
        help="""
        Whether users can create their own accounts, with the role ``user``.

        The following settings restrict it; by default, an invitation, a verified e-mail address
        and the approval of an administrator are required.
        """,
    ).tag(config=True)

    sign_up_domain = Unicode(
        "default",
        help="""
        Domain of accounts that are created without an invitation. An invitation sets its own
        domain.
        """,
    ).tag(config=True)

    sign_up_needs_invitation = Bool(
        True,
        help="""
        Whether users need an invitation, which administrators create.
        """,
    ).tag(config=True)

    sign_up_verifies_email = Bool(
        True,
        help="""
        Whether users must open a link in a mail (``BAI_MAIL_HOST``) before the account is created.

        If False, the page reveals whether an account has an e-mail address.
        """,
    ).tag(config=True)

    sign_up_needs_approval = Bool(
        True,
        help="""
        Whether new accounts are inactive until an administrator approves them.
        """,
    ).tag(config=True)

    sign_up_email_domains = List(
        Unicode(),
        help="""
        Domains of the e-mail addresses that may sign up, such as ``example.org``;
        ``*.example.org`` stands for all subdomains. If empty, all are allowed. They also apply to
        users with an invitation.
        """,
    ).tag(config=True)

    terms_of_service = Unicode(
        help="""
        Terms to which users must agree to sign up: a URL or text. If empty, no consent is
        requested.
        """,
    ).tag(config=True)

    privacy_policy = Unicode(
        help="""
        Privacy policy to which users must agree to sign up: a URL or text. If empty, no consent
        is requested.
        """,
    ).tag(config=True)

    account_deletion = Bool(
        False,
        help="""
        Whether users can delete their own accounts, after they have entered their password.

        The page that changes the password then has a link to this page.
        """,
    ).tag(config=True)

    _can_send = False
    _read_again_at = 0.0
    _base_url: str = "/hub/"

    def require_valid(self, app: Any) -> None:
        """Validate the settings when the Hub starts; ``app`` is the Hub's application.

        Raises
        ------
        TraitError
            If a page sends mails, and ``public_url`` is missing or invalid.
        """
        self._base_url = "/hub/" if app is None else app.hub_prefix
        if not self.public_url and app is not None:
            self.public_url = app.public_url
        if not self.sends_mails:
            return
        parts = urlsplit(self.public_url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query:
            raise TraitError(
                f"SelfService.public_url is {self.public_url!r}: set it, or JupyterHub.public_url, "
                "to the URL of the Hub, for the links in mails"
            )

    @property
    def sends_mails(self) -> bool:
        """Whether an enabled page sends mails."""
        return self.password_reset or (self.sign_up and self.sign_up_verifies_email)

    @property
    def documents(self) -> dict[str, Document]:
        """The documents to which users must agree to sign up, by name."""
        texts = {"terms": self.terms_of_service, "privacy": self.privacy_policy}
        return {name: Document(text.strip()) for name, text in texts.items() if text.strip()}

    def sign_up_rules(self) -> dict[str, Any]:
        """Return the rules that the manager applies to a sign-up."""
        return {
            "domain": self.sign_up_domain,
            "needs_invitation": self.sign_up_needs_invitation,
            "verifies_email": self.sign_up_verifies_email,
            "needs_approval": self.sign_up_needs_approval,
            "email_domains": list(self.sign_up_email_domains),
        }

    def page_url(self, page: str) -> str:
        """Return the public URL of a page of the Hub."""
        parts = urlsplit(self.public_url)
        return f"{parts.scheme}://{parts.netloc}{url_path_join(self._base_url, page)}"

    async def can_send_mails(self, client: ServiceClient) -> bool:
        """Return whether the manager can send mails; False while the manager is unavailable."""
        if time.monotonic() < self._read_again_at:
            return self._can_send
        seconds = MAIL_CACHE_SECONDS
        try:
            status = await client.get("/mail", timeout_seconds=TIMEOUT_SECONDS)
            self._can_send = bool(status["is_configured"])
        except errors.BaiError as error:
            self.log.warning("The settings of the mail server cannot be read: %s", error)
            self._can_send, seconds = False, FAILURE_CACHE_SECONDS
        self._read_again_at = time.monotonic() + seconds
        return self._can_send

    async def offers(self, client: ServiceClient) -> frozenset[str]:
        """Return the pages to which the sign-in page has a link."""
        has_mail = self.sends_mails and await self.can_send_mails(client)
        found = {"password_reset"} if self.password_reset and has_mail else set()
        if self.sign_up and (has_mail or not self.sign_up_verifies_email):
            found.add("sign_up")
        return frozenset(found)
