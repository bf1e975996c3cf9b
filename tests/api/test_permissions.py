"""A table of the outcomes of all operations that require a sign-in, for each role."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import httpx
import pytest

from bai_services.api.openapi import METHODS
from bai_services.api.routes import ROUTES
from bai_services.client import Client, Token
from tests.api.resource_factory import ReusedResources
from tests.testbed.manager import AGENT_TOKEN, HUB_TOKEN, SUPERADMIN, Api

# The account of each role, in the order of the table's columns. The Hub and the agent have a token
# instead of an account. The owner belongs to domain default, and so do all resources that belong to
# a domain. "Foreign" accounts belong to domain acme.
ACCOUNTS = {
    "superadmin": "admin",
    "domain-admin": "domain-admin",
    "foreign-domain-admin": "other-admin",
    "owner": "user",
    "same-domain-user": "user2",
    "foreign-domain-user": "acme-user",
    "monitor": "monitor",
    "hub": "",
    "agent": "",
}
ROLES = tuple(ACCOUNTS)


class Row(NamedTuple):
    """A request and its outcome for each role, in the order of ``ROLES``.

    An outcome is ``ok``, 403 (error ``forbidden``), 404 (error ``not-found``), or the code of
    another error. ``{placeholder}`` stands for a resource that ``ResourceFactory`` creates.
    """

    request: str
    outcomes: str
    body: Any = None


# Columns: superadmin, domain-admin, foreign-domain-admin, owner, same-domain-user,
#          foreign-domain-user, monitor, hub, agent
TABLE = [
    Row("GET /dashboard", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /me", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /me/authenticator", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /me/ssh-keys", "ok ok ok ok ok ok ok 403 403"),
    Row("POST /me/ssh-keys", "ok ok ok ok ok ok ok 403 403", {"name": "{fresh}"}),
    # The key does not exist. Users have access only to their own keys.
    Row("DELETE /me/ssh-keys/nothing", "404 404 404 404 404 404 404 403 403"),
    Row("GET /me/sign-ins", "ok ok ok ok ok ok ok 403 403"),
    Row("DELETE /me/sign-ins", "ok ok ok ok ok ok ok 403 403"),
    Row("DELETE /me/sign-ins/a1", "404 404 404 404 404 404 404 403 403"),
    Row("GET /me/environ", "ok ok ok ok ok ok ok 403 403"),
    Row("PUT /me/environ/SEED", "ok ok ok ok ok ok ok 403 403", {"value": "1"}),
    Row("DELETE /me/environ/NOTHING", "404 404 404 404 404 404 404 403 403"),
    Row("GET /me/dotfiles", "ok ok ok ok ok ok ok 403 403"),
    Row("PUT /me/dotfiles/.vimrc", "ok ok ok ok ok ok ok 403 403", {"content": "x"}),
    Row("DELETE /me/dotfiles/.nothing", "404 404 404 404 404 404 404 403 403"),
    Row("GET /me/bootstrap", "ok ok ok ok ok ok ok 403 403"),
    Row("PUT /me/bootstrap", "ok ok ok ok ok ok ok 403 403", {"script": "true"}),
    Row("DELETE /me/bootstrap", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /usage", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /usage?user=user", "ok ok 404 ok 404 404 ok 403 403"),
    Row("GET /endpoint-usage", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /endpoint-usage?user=user", "ok ok 404 ok 404 404 ok 403 403"),
    Row("GET /budgets", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /budgets",
        "ok ok 404 403 403 403 403 403 403",
        {"project": "{project}", "amount": 1},
    ),
    Row("GET /budgets/{budget}", "ok ok 404 404 404 404 ok 403 403"),
    Row("PATCH /budgets/{budget}", "ok 403 404 403 403 403 403 403 403", {"amount": 2}),
    Row("DELETE /budgets/{budget}", "ok 403 404 403 403 403 403 403 403"),
    Row("GET /overflow-rules", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /overflow-rules",
        "ok ok 404 403 403 403 403 403 403",
        {"project": "{project}", "from_group": "default", "to_group": "{group}"},
    ),
    Row("GET /overflow-rules/{overflow_rule}", "ok ok 404 404 404 404 ok 403 403"),
    Row(
        "PATCH /overflow-rules/{overflow_rule}",
        "ok 403 404 403 403 403 403 403 403",
        {"position": 2},
    ),
    Row("DELETE /overflow-rules/{overflow_rule}", "ok 403 404 403 403 403 403 403 403"),
    Row("GET /usage-prices", "ok ok ok ok ok ok ok 403 403"),
    Row("PUT /usage-prices", "ok 403 403 403 403 403 403 403 403", {"prices": []}),
    Row("GET /metrics", "ok 403 403 403 403 403 ok 403 403"),
    Row("GET /configuration", "ok 403 403 403 403 403 ok 403 403"),
    Row(
        "PUT /configuration/BAI_TRASH_DAYS",
        "ok 403 403 403 403 403 403 403 403",
        {"value": "20"},
    ),
    Row("DELETE /configuration/BAI_TRASH_DAYS", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /component-settings", "ok 403 403 403 403 403 ok 403 403"),
    Row(
        "PUT /component-settings/hub",
        "403 403 403 403 403 403 403 ok 403",
        {"settings": [{"name": "a", "value": "b", "default": "", "origin": "file"}]},
    ),
    Row("GET /counter-audit", "ok 403 403 403 403 403 ok 403 403"),
    Row("GET /mail", "ok 403 403 403 403 403 403 ok 403"),
    # Conflict: no mail server is configured.
    Row(
        "POST /mail/test",
        "conflict 403 403 403 403 403 403 403 403",
        {"address": "ann@example.com"},
    ),
    Row("POST /drain", "403 403 403 403 403 403 403 ok 403"),
    Row(
        "POST /auth/verify",
        "403 403 403 403 403 403 403 sign-in-refused 403",
        {"name": "x", "password": "x"},
    ),
    # Conflict: no mail server is configured.
    Row(
        "POST /auth/password-reset",
        "403 403 403 403 403 403 403 conflict 403",
        {"email": "user@example.com", "page": "https://hub.example.org/hub/reset-password"},
    ),
    Row(
        "POST /auth/password-reset/redeem",
        "403 403 403 403 403 403 403 invalid-request 403",
        {"email": "user@example.com", "token": "x", "new_password": "x"},
    ),
    Row(
        "POST /auth/sign-up",
        "403 403 403 403 403 403 403 ok 403",
        {
            "username": "{fresh}",
            "email": "{fresh}@example.com",
            "password": "Correct-horse-7",
            "page": "https://hub.example.org/hub/verify-email",
            "rules": {
                "domain": "default",
                "needs_invitation": False,
                "verifies_email": False,
                "needs_approval": True,
            },
        },
    ),
    Row(
        "POST /auth/sign-up/verify",
        "403 403 403 403 403 403 403 invalid-request 403",
        {
            "token": "x",
            "password": "x",
            "rules": {
                "domain": "default",
                "needs_invitation": False,
                "verifies_email": True,
                "needs_approval": True,
            },
        },
    ),
    Row(
        "POST /auth/account-deletion",
        "403 403 403 403 403 403 403 sign-in-refused 403",
        {"name": "x", "password": "x"},
    ),
    Row("GET /sign-up-invitations", "ok ok ok 403 403 403 ok 403 403"),
    Row("POST /sign-up-invitations", "ok ok ok 403 403 403 403 403 403", {}),
    Row("GET /sign-up-invitations/{sign_up_invitation}", "ok ok 404 403 403 403 ok 403 403"),
    Row("DELETE /sign-up-invitations/{sign_up_invitation}", "ok ok 404 403 403 403 403 403 403"),
    Row("GET /auth/accounts/user", "403 403 403 403 403 403 403 ok 403"),
    # One-time codes are off, so not even the Hub can register an authenticator app.
    Row(
        "POST /auth/accounts/user/authenticator",
        "403 403 403 403 403 403 403 403 403",
        {"registration": "x", "code": "123456"},
    ),
    Row(
        "POST /auth/accounts/user/authenticator/registration",
        "403 403 403 403 403 403 403 403 403",
    ),
    Row(
        "POST /auth/external",
        "403 403 403 403 403 403 403 sign-in-refused 403",
        {"user": {"provider": "p", "issuer": "https://a.example", "subject": "s"}},
    ),
    # The account has no password, so there is nothing to check.
    Row(
        "POST /auth/accounts/user/identity-confirmation",
        "403 403 403 403 403 403 403 ok 403",
        {"password": "x"},
    ),
    # Invalid: the token has expired.
    Row(
        "POST /auth/signed-tokens",
        "403 403 403 403 403 403 403 invalid-request 403",
        {"token_hash": "0" * 64, "expires_at": "2026-01-01T00:00:00Z"},
    ),
    Row("GET /auth/accounts/user/identities", "403 403 403 403 403 403 403 ok 403"),
    Row(
        "POST /auth/accounts/user/identities",
        "403 403 403 403 403 403 403 ok 403",
        {"user": {"provider": "p", "issuer": "https://{fresh}.example", "subject": "s"}},
    ),
    Row("DELETE /auth/accounts/user/identities/nothing", "403 403 403 403 403 403 403 404 403"),
    # Invalid: the users of this test sign with a keypair and have no token to revoke.
    Row("DELETE /auth/token", " ".join([*["invalid-request"] * 7, "403 403"])),
    Row("GET /domains", "ok ok ok ok ok ok ok 403 403"),
    Row("POST /domains", "ok 403 403 403 403 403 403 403 403", {"name": "{fresh}"}),
    Row("GET /domains/default", "ok ok 404 ok ok 404 ok 404 404"),
    Row("PATCH /domains/default", "ok 403 404 403 403 404 403 404 404", {"description": "x"}),
    Row("DELETE /domains/{domain}", "ok 404 404 404 404 404 403 404 404"),
    Row("GET /projects", "ok ok ok ok ok ok ok 403 403"),
    Row("POST /projects", "ok ok ok 403 403 403 403 403 403", {"name": "{fresh}"}),
    Row("GET /projects/{project}", "ok ok 404 404 404 404 ok 403 403"),
    Row("PATCH /projects/{project}", "ok ok 404 404 404 404 403 403 403", {"description": "x"}),
    Row("DELETE /projects/{project}", "ok ok 404 404 404 404 403 403 403"),
    Row("GET /projects/{project}/environ", "ok ok 404 404 404 404 403 403 403"),
    Row(
        "PUT /projects/{project}/environ/SEED", "ok ok 404 404 404 404 403 403 403", {"value": "1"}
    ),
    Row("DELETE /projects/{project}/environ/NOTHING", "404 404 404 404 404 404 403 403 403"),
    Row("GET /projects/{project}/dotfiles", "ok ok 404 404 404 404 403 403 403"),
    Row(
        "PUT /projects/{project}/dotfiles/.vimrc",
        "ok ok 404 404 404 404 403 403 403",
        {"content": "x"},
    ),
    Row("DELETE /projects/{project}/dotfiles/.nothing", "404 404 404 404 404 404 403 403 403"),
    Row("GET /projects/{project}/bootstrap", "ok ok 404 404 404 404 403 403 403"),
    Row(
        "PUT /projects/{project}/bootstrap", "ok ok 404 404 404 404 403 403 403", {"script": "true"}
    ),
    Row("DELETE /projects/{project}/bootstrap", "404 404 404 404 404 404 403 403 403"),
    Row("GET /projects/{project}/members", "ok ok 404 404 404 404 ok 403 403"),
    Row("PUT /projects/{project}/members/user2", "ok ok 404 404 404 404 403 403 403"),
    Row("DELETE /projects/{project}/members/user2", "404 404 404 404 404 404 403 403 403"),
    Row("GET /users", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /users",
        "ok ok ok 403 403 403 403 403 403",
        {"username": "{fresh}", "email": "{fresh}@example.com"},
    ),
    Row("GET /users/user", "ok ok 404 ok 404 404 ok 403 403"),
    Row("PATCH /users/user", "ok ok 404 ok 404 404 403 403 403", {"full_name": "x"}),
    Row("PATCH /users/{other_user}", "ok 403 404 404 404 404 403 403 403", {"role": "admin"}),
    Row("DELETE /users/{other_user}", "ok ok 404 404 404 404 403 403 403"),
    Row("POST /users/user/sign-out", "ok ok 404 ok 404 404 403 403 403"),
    # Conflict: the account awaits no approval.
    Row("POST /users/user/approve", "conflict conflict 404 403 404 404 403 403 403"),
    # Conflict: the user is active.
    Row("POST /users/user/purge", "conflict 403 404 403 404 404 403 403 403", {}),
    Row("POST /users/user/unlock", "ok ok 404 403 404 404 403 403 403"),
    # The user has no authenticator app.
    Row("DELETE /users/user/authenticator", "404 404 404 403 404 404 403 403 403"),
    Row("GET /users/user/identities", "ok ok 404 ok 404 404 ok 403 403"),
    # There is no such identity.
    Row("DELETE /users/user/identities/nothing", "404 404 404 403 404 404 403 403 403"),
    Row("GET /keypairs", "ok ok ok ok ok ok ok 403 403"),
    Row("POST /keypairs", "ok ok 404 403 403 403 403 403 403", {"user": "user"}),
    Row("GET /keypairs/{keypair}", "ok ok 404 ok 404 404 ok 404 404"),
    Row("GET /keypairs/{keypair}/callback-secret", "403 403 404 ok 404 404 403 404 404"),
    Row("PATCH /keypairs/{keypair}", "ok ok 404 ok 404 404 403 404 404", {"new_secret": True}),
    Row("PATCH /keypairs/{keypair}", "ok ok 404 403 404 404 403 404 404", {"rate_limit": 5}),
    Row("DELETE /keypairs/{keypair}", "ok ok 404 403 404 404 403 404 404"),
    *(
        row
        for kind in ("keypair", "user", "project")
        for row in (
            Row(f"GET /{kind}-policies", "ok ok ok ok ok ok ok 403 403"),
            Row(
                f"POST /{kind}-policies", "ok 403 403 403 403 403 403 403 403", {"name": "{fresh}"}
            ),
            Row(f"GET /{kind}-policies/{{{kind}_policy}}", "ok ok ok ok ok ok ok 403 403"),
            Row(
                f"PATCH /{kind}-policies/{{{kind}_policy}}",
                "ok 403 403 403 403 403 403 403 403",
                {},
            ),
            Row(f"DELETE /{kind}-policies/{{{kind}_policy}}", "ok 403 403 403 403 403 403 403 403"),
        )
    ),
    Row("GET /audit-log", "ok ok ok 403 403 403 ok 403 403"),
    Row("GET /audit-log/mine", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /audit-log/verification", "ok 403 403 403 403 403 ok 403 403"),
    Row("GET /announcements", "ok ok ok 403 403 403 ok 403 403"),
    Row("POST /announcements", "ok 403 403 403 403 403 403 403 403", {"title": "x"}),
    Row(
        "POST /announcements",
        "ok ok 404 403 403 403 403 403 403",
        {"title": "x", "audience": "domain", "target": "default"},
    ),
    Row("GET /announcements/current", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /announcements/{announcement}", "ok ok 404 403 403 403 ok 403 403"),
    Row(
        "PATCH /announcements/{announcement}",
        "ok 403 404 403 403 403 403 403 403",
        {"title": "y"},
    ),
    Row("PUT /announcements/{announcement}/dismissal", "ok ok 404 ok ok 404 ok 403 403"),
    Row("DELETE /announcements/{announcement}", "ok 403 404 403 403 403 403 403 403"),
    Row("GET /notifications", "ok ok ok ok ok ok ok 403 403"),
    Row("PUT /notifications/read", "ok ok ok ok ok ok ok 403 403"),
    # The notification does not exist.
    Row("PUT /notifications/nothing/read", "404 404 404 404 404 404 404 403 403"),
    Row("GET /notification-events", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /notification-settings", "ok ok ok ok ok ok ok 403 403"),
    Row("PATCH /notification-settings", "ok ok ok ok ok ok ok 403 403", {"digest": "none"}),
    Row("GET /webhooks", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /webhooks",
        "ok 403 403 403 403 403 403 403 403",
        {"url": "https://example.org/", "scope": "all"},
    ),
    Row(
        "POST /webhooks",
        "ok ok 404 403 403 403 403 403 403",
        {"url": "https://example.org/", "scope": "domain", "domain": "default"},
    ),
    Row("GET /webhooks/{webhook}", "ok ok 404 404 404 404 ok 403 403"),
    Row("PATCH /webhooks/{webhook}", "ok 403 404 404 404 404 403 403 403", {"name": "x"}),
    Row("POST /webhooks/{webhook}/secret", "ok 403 404 404 404 404 403 403 403"),
    Row("POST /webhooks/{webhook}/test", "ok 403 404 404 404 404 403 403 403"),
    Row("GET /webhooks/{webhook}/deliveries", "ok ok 404 404 404 404 ok 403 403"),
    Row("DELETE /webhooks/{webhook}", "ok 403 404 404 404 404 403 403 403"),
    Row("GET /system", "ok 403 403 403 403 403 ok 403 403"),
    Row("GET /maintenances", "ok ok ok 403 403 403 ok 403 403"),
    # The agent does not exist, so that the maintenance does not affect other requests.
    Row(
        "POST /maintenances",
        "404 403 403 403 403 403 403 403 403",
        {"reason": "x", "scope": "agent", "target": "nothing"},
    ),
    Row("GET /maintenances/current", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /maintenances/{maintenance}", "ok ok ok 403 403 403 ok 403 403"),
    Row(
        "PATCH /maintenances/{maintenance}",
        "ok 403 403 403 403 403 403 403 403",
        {"reason": "y"},
    ),
    Row("DELETE /maintenances/{maintenance}", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /reservations", "ok ok ok ok ok ok ok 403 403"),
    # The resource group does not exist, so that nothing is reserved.
    Row(
        "POST /reservations",
        "404 404 404 404 404 404 403 403 403",
        {
            "name": "course",
            "project": "default",
            "resource_group": "nothing",
            "resources": {"cpu": 1},
            "starts_at": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
            "ends_at": (datetime.now(UTC) + timedelta(days=2)).isoformat(),
        },
    ),
    Row("GET /reservations/nothing/delays", "404 404 404 404 404 404 404 403 403"),
    Row("GET /reservations/nothing/conflicts", "404 404 404 404 404 404 404 403 403"),
    Row("GET /reservations/nothing", "404 404 404 404 404 404 404 403 403"),
    Row(
        "PATCH /reservations/nothing",
        "404 404 404 404 404 404 404 403 403",
        {"state": "cancelled"},
    ),
    Row("GET /resource-groups", "ok ok ok ok ok ok ok 403 403"),
    Row("POST /resource-groups", "ok 403 403 403 403 403 403 403 403", {"name": "{fresh}"}),
    Row("GET /resource-groups/default", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "PATCH /resource-groups/{group}", "ok 403 403 403 403 403 403 403 403", {"description": "x"}
    ),
    Row("DELETE /resource-groups/{group}", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /resource-groups/default/schedule", "ok ok ok 403 403 403 ok 403 403"),
    Row("GET /resource-groups/default/replays", "ok ok ok 403 403 403 ok 403 403"),
    Row(
        "POST /resource-groups/default/replays",
        "ok ok ok 403 403 403 403 403 403",
        {"since": "{yesterday}"},
    ),
    Row("GET /resource-groups/default/replays/nothing", "404 404 404 403 403 403 404 403 403"),
    Row("DELETE /resource-groups/default/replays/nothing", "404 404 404 403 403 403 403 403 403"),
    Row("GET /resource-groups/{linked_group}/links", "ok 403 403 403 403 403 ok 403 403"),
    Row("PUT /resource-groups/{group}/links/domain/acme", "ok 403 403 403 403 403 403 403 403"),
    Row(
        "DELETE /resource-groups/{linked_group}/links/domain/default",
        "ok 403 403 403 403 403 403 403 403",
    ),
    Row("GET /agents", "ok ok ok 403 403 403 ok 403 403"),
    # By default, users may not list agents (setting `shows_agents`).
    Row("GET /agent-summaries", "ok ok ok 403 403 403 ok 403 403"),
    Row("GET /agent-totals", "ok ok ok 403 403 403 ok 403 403"),
    Row("GET /agents/{agent}", "ok ok ok 403 403 403 ok 403 403"),
    Row("PATCH /agents/{agent}", "ok 403 403 403 403 403 403 403 403", {"schedulable": True}),
    Row("DELETE /agents/{agent}", "in-use 403 403 403 403 403 403 403 403"),
    Row(
        "POST /agents/{agent}/heartbeat",
        "403 403 403 403 403 403 403 403 ok",
        {
            "resource_group": "default",
            "engine": "process",
            "architecture": "x86_64",
            "version": "1",
            "slots": {"cpu": "1", "mem": "1g"},
            "kernels": [],
        },
    ),
    Row("GET /agents/{agent}/work?wait=0", "403 403 403 403 403 403 403 403 ok"),
    Row(
        "POST /agents/{agent}/reports",
        "403 403 403 403 403 403 403 403 404",
        {"work_id": "x", "kind": "prepare", "session_id": "x", "kernel_id": "x", "state": "done"},
    ),
    Row(
        "POST /agents/{agent}/bulk-reports",
        "403 403 403 403 403 403 403 403 ok",
        {"reports": [{"kind": "prepare", "session_id": "x", "state": "done"}]},
    ),
    Row("GET /agent-invitations", "ok ok ok 403 403 403 ok 403 403"),
    Row("POST /agent-invitations", "ok 403 403 403 403 403 403 403 403", {}),
    Row("GET /agent-invitations/{agent_invitation}", "ok ok ok 403 403 403 ok 403 403"),
    Row("DELETE /agent-invitations/{agent_invitation}", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /provisioned-machines", "ok ok ok 403 403 403 ok 403 403"),
    Row("GET /provisioned-machines/{provisioned_machine}", "ok ok ok 403 403 403 ok 403 403"),
    Row("DELETE /provisioned-machines/{provisioned_machine}", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /agent-joins/{joined_agent}", "403 403 403 403 403 403 403 403 ok"),
    Row("GET /agents/{joined_agent}/membership", "403 403 403 403 403 403 403 403 ok"),
    Row("DELETE /agents/{joined_agent}/membership", "403 403 403 403 403 403 403 403 ok"),
    Row("POST /agents/{joined_agent}/drain", "403 403 403 403 403 403 403 403 ok"),
    Row("POST /cluster-checks", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /devices", "ok ok ok 403 403 403 ok 403 403"),
    Row("GET /image-pulls", "ok ok ok 403 403 403 ok 403 403"),
    Row(
        "POST /image-pulls",
        "404 403 403 403 403 403 403 403 403",
        {"images": ["nothing"], "resource_group": "default"},
    ),
    Row(
        "POST /image-prunes",
        "404 403 403 403 403 403 403 403 403",
        {"resource_group": "nothing", "unused_seconds": 86_400},
    ),
    Row("DELETE /image-pulls/nothing", "404 403 403 403 403 403 403 403 403"),
    Row("GET /images/{image}/agents", "ok ok ok 403 403 403 ok 403 403"),
    Row("GET /images/{image}/sbom", "404 404 404 404 404 404 404 403 403"),
    Row("GET /custom-images", "ok ok ok ok ok ok ok 403 403"),
    # Builds from recipes are disabled.
    Row(
        "POST /custom-images",
        "403 403 403 403 403 403 403 403 403",
        {"name": "{fresh}", "recipe": {"apt.txt": "graphviz"}},
    ),
    Row(
        "POST /recipes",
        "403 403 403 403 403 403 403 403 403",
        {"repo": "https://example.org/a.git"},
    ),
    Row("GET /custom-images/{custom_image}", "ok ok 404 ok 404 404 ok 403 403"),
    Row("GET /custom-images/{custom_image}/log", "ok ok 404 ok 404 404 403 403 403"),
    Row(
        "PATCH /custom-images/{custom_image}",
        "ok ok 404 ok 404 404 403 403 403",
        {"visibility": "project"},
    ),
    Row(
        "PATCH /custom-images/{custom_image}",
        "ok 403 404 403 404 404 403 403 403",
        {"visibility": "public"},
    ),
    Row("DELETE /custom-images/{custom_image}", "ok ok 404 ok 404 404 403 403 403"),
    Row("POST /custom-images/{open_commit}/cancel", "ok ok 404 ok 404 404 403 403 403"),
    Row(
        "POST /custom-images/{custom_image}/publication-request",
        "ok ok 404 ok 404 404 403 403 403",
    ),
    # The session is pending.
    Row(
        "POST /sessions/{session}/commit",
        "conflict conflict 404 conflict 404 404 403 403 403",
        {"name": "{fresh}"},
    ),
    Row("GET /image-registries", "ok 403 403 403 403 403 403 403 403"),
    Row(
        "POST /image-registries",
        "ok 403 403 403 403 403 403 403 403",
        {"name": "{fresh}", "url": "https://{fresh}.example.org"},
    ),
    Row("GET /image-registries/{image_registry}", "ok 403 403 403 403 403 403 403 403"),
    Row(
        "PATCH /image-registries/{image_registry}",
        "ok 403 403 403 403 403 403 403 403",
        {"username": "robot"},
    ),
    Row("POST /image-registries/{image_registry}/scan", "ok 403 403 403 403 403 403 403 403"),
    # No scan is running.
    Row(
        "DELETE /image-registries/{image_registry}/scan",
        "invalid-transition 403 403 403 403 403 403 403 403",
    ),
    Row("DELETE /image-registries/{image_registry}", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /images", "ok ok ok ok ok ok ok 403 403"),
    Row("POST /images", "ok 403 403 403 403 403 403 403 403", {"name": "test/{fresh}:1"}),
    Row("GET /images/{image}", "ok ok ok ok ok ok ok 403 403"),
    Row("PATCH /images/{image}", "ok 403 403 403 403 403 403 403 403", {"description": "x"}),
    Row("DELETE /images/{image}", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /image-aliases", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /image-aliases",
        "ok 403 403 403 403 403 403 403 403",
        {"alias": "{fresh}", "image": "{image}"},
    ),
    Row("GET /image-aliases/{alias}", "ok ok ok ok ok ok ok 403 403"),
    Row("PATCH /image-aliases/{alias}", "ok 403 403 403 403 403 403 403 403", {"image": "{image}"}),
    Row("DELETE /image-aliases/{alias}", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /idle-checkers", "ok ok ok 403 403 403 ok 403 403"),
    Row(
        "POST /idle-checkers",
        "ok 403 403 403 403 403 403 403 403",
        {"name": "{fresh}", "type": "network", "max_seconds": 600},
    ),
    Row("GET /idle-checkers/{idle_checker}", "ok ok ok 403 403 403 ok 403 403"),
    Row(
        "PATCH /idle-checkers/{idle_checker}",
        "ok 403 403 403 403 403 403 403 403",
        {"max_seconds": 900},
    ),
    Row("DELETE /idle-checkers/{idle_checker}", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /idle-checker-bindings", "ok ok ok 403 403 403 ok 403 403"),
    *(
        Row(
            "POST /idle-checker-bindings",
            outcomes,
            {"checker": "{idle_checker}", "scope": scope, "scope_key": key},
        )
        for scope, key, outcomes in (
            ("domain", "default", "ok ok 404 403 403 403 403 403 403"),
            ("project", "{project}", "ok ok 404 403 403 403 403 403 403"),
            ("user", "user", "ok ok 404 403 403 403 403 403 403"),
            ("user", "admin", "ok 403 404 403 403 403 403 403 403"),
            ("resource-group", "default", "ok 403 403 403 403 403 403 403 403"),
            ("keypair-policy", "default", "ok 403 403 403 403 403 403 403 403"),
        )
    ),
    # Superadmins made the first binding, a domain admin the second one.
    Row(
        "PATCH /idle-checker-bindings/{idle_binding}",
        "ok 403 404 403 403 403 403 403 403",
        {"is_enabled": False},
    ),
    Row(
        "PATCH /idle-checker-bindings/{idle_binding_of_admin}",
        "ok ok 404 403 403 403 403 403 403",
        {"is_dry_run": True},
    ),
    Row("DELETE /idle-checker-bindings/{idle_binding}", "ok 403 404 403 403 403 403 403 403"),
    Row(
        "DELETE /idle-checker-bindings/{idle_binding_of_admin}",
        "ok ok 404 403 403 403 403 403 403",
    ),
    Row("GET /idle-decisions", "ok ok ok 403 403 403 ok 403 403"),
    Row("GET /preemptions", "ok ok ok 403 403 403 ok 403 403"),
    Row(
        "POST /idle-replays",
        "ok ok ok 403 403 403 ok 403 403",
        {"max_seconds": 600, "thresholds": {"cpu_util": 5}, "period_seconds": 3600},
    ),
    Row("GET /presets", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /presets",
        "ok 403 403 403 403 403 403 403 403",
        {"name": "{fresh}", "resource_slots": {"cpu": "1"}},
    ),
    Row("GET /presets/{preset}", "ok ok ok ok ok ok ok 403 403"),
    Row("PATCH /presets/{preset}", "ok 403 403 403 403 403 403 403 403", {"shared_memory": "64m"}),
    Row("DELETE /presets/{preset}", "ok 403 403 403 403 403 403 403 403"),
    Row("GET /vfolders", "ok ok ok ok ok ok ok 403 403"),
    Row("POST /vfolders", "ok ok ok ok ok ok 403 403 403", {"name": "{fresh}"}),
    Row(
        "POST /vfolders",
        "ok ok 404 403 403 404 403 403 403",
        {"name": "{fresh}", "project": "default/default"},
    ),
    Row("GET /vfolders/{folder}", "ok ok 404 ok 404 404 ok 403 403"),
    Row("PATCH /vfolders/{folder}", "ok ok 404 ok 404 404 403 403 403", {"permission": "ro"}),
    Row("DELETE /vfolders/{folder}", "ok ok 404 ok 404 404 403 403 403"),
    Row("POST /vfolders/{trashed_folder}/restore", "ok ok 404 ok 404 404 403 403 403"),
    Row("POST /vfolders/{trashed_folder}/purge", "ok ok 404 ok 404 404 403 403 403"),
    Row("GET /vfolders/{folder}/usage", "ok ok 404 ok 404 404 403 403 403"),
    Row("GET /vfolders/{folder}/grants", "ok ok 404 ok 404 404 ok 403 403"),
    Row("GET /vfolders/{shared_folder}/grants/monitor", "ok ok 404 ok 404 404 ok 403 403"),
    Row(
        "PUT /vfolders/{folder}/grants/user2",
        "ok ok 404 ok 404 404 403 403 403",
        {"permission": "ro"},
    ),
    Row("DELETE /vfolders/{shared_folder}/grants/monitor", "ok ok 404 ok 404 404 ok 403 403"),
    Row("GET /vfolders/{folder}/files", "ok ok 404 ok 404 404 403 403 403"),
    Row("GET /vfolders/{shared_folder}/files", "ok ok 404 ok 404 404 ok 403 403"),
    Row("GET /vfolders/{folder_with_file}/content?path=f", "ok ok 404 ok 404 404 403 403 403"),
    Row("PUT /vfolders/{folder}/content?path=f", "ok ok 404 ok 404 404 403 403 403"),
    Row("PUT /vfolders/{shared_folder}/content?path=f", "ok ok 404 ok 404 404 403 403 403"),
    Row("DELETE /vfolders/{folder_with_file}/content?path=f", "ok ok 404 ok 404 404 403 403 403"),
    Row(
        "POST /vfolders/{cloneable_folder}/clone",
        "ok ok 404 ok 404 404 403 403 403",
        {"name": "{fresh}"},
    ),
    Row(
        "POST /vfolders/{folder}/clone", "403 403 404 403 404 404 403 403 403", {"name": "{fresh}"}
    ),
    Row("PUT /vfolders/{folder}/owner", "ok 403 403 403 403 403 403 403 403", {"user": "user2"}),
    Row(
        "POST /vfolders/{folder}/directories", "ok ok 404 ok 404 404 403 403 403", {"paths": ["d"]}
    ),
    Row(
        "POST /vfolders/{shared_folder}/directories",
        "ok ok 404 ok 404 404 403 403 403",
        {"paths": ["d"]},
    ),
    *(
        Row(
            f"POST /vfolders/{{folder_with_file}}/{verb}",
            "ok ok 404 ok 404 404 403 403 403",
            {"source": "f", "target": "g"},
        )
        for verb in ("move", "copy")
    ),
    Row("GET /vfolders/{folder_with_file}/archive", "ok ok 404 ok 404 404 403 403 403"),
    Row("GET /vfolders/{shared_folder}/archive", "ok ok 404 ok 404 404 ok 403 403"),
    # An empty body is not a valid archive.
    Row(
        "PUT /vfolders/{folder}/archive",
        "invalid-request invalid-request 404 invalid-request 404 404 403 403 403",
    ),
    # The header Upload-Length is missing.
    Row(
        "POST /vfolders/{folder}/uploads",
        "invalid-request invalid-request 404 invalid-request 404 404 403 403 403",
    ),
    # Only the user who started an upload has access to it.
    Row("HEAD /vfolders/{upload_folder}/uploads/{upload}", "404 404 404 ok 404 404 403 403 403"),
    # The headers of the tus protocol are missing; they are checked before the permission.
    Row("PATCH /vfolders/{upload_folder}/uploads/{upload}", "invalid-request " * 9),
    Row("DELETE /vfolders/{upload_folder}/uploads/{upload}", "404 404 404 ok 404 404 403 403 403"),
    Row("GET /vfolders/{folder}/invitations", "ok ok 404 ok 404 404 ok 403 403"),
    Row(
        "POST /vfolders/{folder}/invitations",
        "ok ok 404 ok 404 404 403 403 403",
        {"user": "user2"},
    ),
    Row("GET /vfolder-invitations", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /vfolder-invitations/{invitation}", "ok ok 404 ok ok 404 404 404 404"),
    Row(
        "PATCH /vfolder-invitations/{invitation}",
        "ok ok 404 ok 403 404 404 404 404",
        {"permission": "rw"},
    ),
    Row("DELETE /vfolder-invitations/{invitation}", "ok ok 404 ok 403 404 404 404 404"),
    Row("POST /vfolder-invitations/{invitation}/accept", "403 403 404 403 ok 404 404 404 404"),
    Row("POST /vfolder-invitations/{invitation}/decline", "403 403 404 403 ok 404 404 404 404"),
    Row("GET /storage-hosts", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /quota-scopes", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /quota-scopes/local/{user_scope}", "ok ok 404 ok 404 404 ok 403 403"),
    Row(
        "PUT /quota-scopes/local/{user_scope}",
        "ok 403 403 403 403 403 403 403 403",
        {"limit_bytes": None},
    ),
    Row("GET /events", "ok ok ok ok ok ok ok ok 403"),
    Row("GET /events?session={session}", "ok ok 404 ok 404 404 ok ok 403"),
    Row("GET /kernels", "ok ok ok ok ok ok ok ok 403"),
    Row("GET /allocations", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /session-dependencies", "ok ok ok ok ok ok ok ok 403"),
    Row("GET /session-logs?search=x", "ok ok ok ok ok ok ok ok 403"),
    Row("GET /sessions", "ok ok ok ok ok ok ok ok 403"),
    Row("POST /sessions", "ok ok ok ok ok ok 403 invalid-request 403", {"name": "{fresh}"}),
    # A session for another user.
    Row(
        "POST /sessions",
        "ok ok 404 ok 403 403 403 ok 403",
        {"name": "{fresh}", "owner": "user", "project": "default"},
    ),
    # The preview reports a missing owner like any other invalid field.
    Row("POST /sessions/preview", "ok ok ok ok ok ok 403 ok 403", {"name": "{fresh}"}),
    Row("GET /sessions/options", "ok ok ok ok ok ok 403 invalid-request 403"),
    Row("GET /sessions/quotas", "ok ok ok ok ok ok 403 invalid-request 403"),
    Row("GET /sessions/{session}", "ok ok 404 ok 404 404 ok ok 403"),
    Row("PATCH /sessions/{session}", "ok ok 404 ok 404 404 403 ok 403", {"name": "{fresh}"}),
    Row("DELETE /sessions/{session}", "ok ok 404 ok 404 404 403 ok 403"),
    Row(
        "POST /sessions/{session}/lifetime",
        "conflict conflict 404 conflict 404 404 403 conflict 403",
        {"seconds": 60},
    ),
    Row(
        "POST /sessions/{session}/resize",
        "conflict conflict 404 conflict 404 404 403 conflict 403",
        {"resources": {"cpu": "2"}},
    ),
    Row(
        "POST /sessions/{session}/activity",
        "conflict conflict 404 conflict 404 404 403 conflict 403",
        {},
    ),
    Row(
        "POST /sessions/{session}/idle-checks/keep-alive",
        "conflict conflict 404 conflict 404 404 403 conflict 403",
    ),
    Row(
        "PUT /sessions/{session}/idle-checks/exclusion",
        "conflict conflict 404 conflict 404 404 403 conflict 403",
        {},
    ),
    # The session is pending: it cannot be suspended or resumed, and no stop is planned.
    Row(
        "POST /sessions/{session}/suspend",
        "conflict conflict 404 conflict 404 404 403 conflict 403",
        {},
    ),
    Row(
        "POST /sessions/{session}/resume",
        "conflict conflict 404 conflict 404 404 403 conflict 403",
    ),
    Row("GET /sessions/{session}/suspension", "404 404 404 404 404 404 403 404 403"),
    Row("GET /sessions/{session}/stop-notice?timeout=0", "ok ok 404 ok 404 404 403 ok 403"),
    Row(
        "POST /sessions/{session}/stop-notice",
        "conflict conflict 404 conflict 404 404 403 conflict 403",
        {},
    ),
    Row("GET /sessions/{session}/logs", "ok ok 404 ok 404 404 403 ok 403"),
    Row("GET /sessions/{session}/log-file", "ok ok 404 ok 404 404 403 ok 403"),
    Row("GET /sessions/{session}/log-stream", "ok ok 404 ok 404 404 403 ok 403"),
    # Only the owner may get a token. The result is a conflict, because the session is pending.
    Row("POST /sessions/{session}/token", "403 403 404 conflict 404 404 403 403 403"),
    Row("POST /sessions/{session}/server", "403 403 404 conflict 404 404 403 403 403"),
    Row("GET /app-shares", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /sessions/{session}/app-shares", "ok ok 404 ok 404 404 ok ok 403"),
    # The policy of the demo data forbids app shares, even to roles with the permission to share.
    Row(
        "POST /sessions/{session}/app-shares",
        "403 403 404 403 404 404 403 403 403",
        {"app": "tensorboard", "user": "user2"},
    ),
    Row("DELETE /sessions/{session}/app-shares/nothing", "404 404 404 404 404 404 403 403 403"),
    # This operation accepts only session tokens.
    Row(
        "POST /app-visits",
        "403 403 403 403 403 403 403 403 403",
        {"session_id": "{session}", "app": "tensorboard", "client_ip": "127.0.0.1"},
    ),
    Row("GET /sessions/{session}/history", "ok ok 404 ok 404 404 ok ok 403"),
    Row("GET /sessions/{session}/usage-history", "ok ok 404 ok 404 404 ok ok 403"),
    Row("GET /usage-trends", "ok ok ok ok ok ok ok ok 403"),
    Row("GET /sessions/{session}/usage", "ok ok 404 ok 404 404 ok ok 403"),
    Row("GET /sessions/{session}/apps", "ok ok 404 ok 404 404 ok ok 403"),
    Row("GET /sessions/{session}/why", "ok ok 404 ok 404 404 ok ok 403"),
    Row("GET /sessions/{session}/dependency-graph", "ok ok 404 ok 404 404 ok ok 403"),
    Row(
        "POST /bulk-sessions",
        "ok ok ok ok ok ok 403 invalid-request 403",
        {"sessions": [{"name": "{fresh}"}]},
    ),
    Row("GET /schedules", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /schedules",
        "ok ok ok ok ok ok 403 403 403",
        {"name": "{fresh}", "start": "daily 08:00"},
    ),
    Row("GET /schedules/{schedule}", "ok ok 404 ok 404 404 ok 403 403"),
    Row("GET /schedules/{schedule}/runs", "ok ok 404 ok 404 404 ok 403 403"),
    Row(
        "PATCH /schedules/{schedule}",
        "ok ok 404 ok 404 404 403 403 403",
        {"is_paused": False},
    ),
    # Only the owner sets the request.
    Row(
        "PATCH /schedules/{schedule}",
        "403 403 404 ok 404 404 403 403 403",
        {"start": "daily 09:00"},
    ),
    Row("DELETE /schedules/{schedule}", "ok ok 404 ok 404 404 403 403 403"),
    # Members of the project may read an endpoint. Only the owner defines what it runs, and creates
    # tokens.
    Row("GET /endpoints", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /endpoints",
        "ok ok ok ok ok ok 403 403 403",
        {"name": "{fresh}", "settings": {"variant": "cmd", "command": "x"}},
    ),
    Row("GET /endpoints/{endpoint}", "ok ok 404 ok ok 404 ok 403 403"),
    Row("GET /endpoints/{endpoint}/revisions", "ok ok 404 ok ok 404 ok 403 403"),
    Row("GET /endpoints/{endpoint}/replicas", "ok ok 404 ok ok 404 ok 403 403"),
    Row(
        "GET /endpoints/{endpoint}/replicas/nothing/history",
        "404 404 404 404 404 404 404 403 403",
    ),
    Row("GET /endpoints/{endpoint}/audit-log", "ok ok 404 ok 403 404 403 403 403"),
    Row("GET /endpoints/{endpoint}/scalings", "ok ok 404 ok ok 404 ok 403 403"),
    Row("GET /endpoints/{endpoint}/load", "ok ok 404 ok ok 404 ok 403 403"),
    Row("GET /endpoints/{endpoint}/tokens", "ok ok 404 ok 403 404 403 403 403"),
    Row("GET /endpoints/{endpoint}/usage", "ok ok 404 ok 403 404 403 403 403"),
    Row("PATCH /endpoints/{endpoint}", "ok ok 404 ok 403 404 403 403 403", {"replicas": 0}),
    Row("PATCH /endpoints/{endpoint}", "403 403 404 ok 403 404 403 403 403", {"max_queue": 1}),
    Row("POST /endpoints/{endpoint}/revisions", "403 403 404 ok 403 404 403 403 403", {}),
    Row("POST /endpoints/{endpoint}/rollback", "ok ok 404 ok 403 404 403 403 403", {"revision": 1}),
    # Conflict: no rollout waits for its promotion.
    Row("POST /endpoints/{endpoint}/promotion", "403 403 404 conflict 403 404 403 403 403", {}),
    Row(
        "POST /endpoints/{endpoint}/tokens",
        "403 403 404 ok 403 404 403 403 403",
        {"name": "{fresh}"},
    ),
    Row("DELETE /endpoints/{endpoint}/tokens/nothing", "404 404 404 404 403 404 403 403 403"),
    # Members of the project may chat with its endpoints.
    Row("POST /endpoints/{endpoint}/chat-token", "ok ok 404 ok ok 404 403 403 403"),
    Row("DELETE /endpoints/{endpoint}", "ok ok 404 ok 403 404 403 403 403"),
    # Only the user who has created a chat may read it.
    Row("GET /chats", "ok ok ok ok ok ok ok 403 403"),
    Row("POST /chats", "ok ok ok ok ok ok ok 403 403", {"cards": [{}]}),
    Row("GET /chats/{chat}", "404 404 404 ok 404 404 404 403 403"),
    Row("PATCH /chats/{chat}", "404 404 404 ok 404 404 404 403 403", {"title": "x"}),
    Row("DELETE /chats/{chat}", "404 404 404 ok 404 404 404 403 403"),
    Row(
        "POST /endpoint-trials",
        "ok ok ok ok ok ok 403 403 403",
        {"settings": {"variant": "cmd", "command": "x"}},
    ),
    # Only the user who has started a trial reads and ends it.
    Row("GET /endpoint-trials/nothing", "404 404 404 404 404 404 403 403 403"),
    Row("DELETE /endpoint-trials/nothing", "404 404 404 404 404 404 403 403 403"),
    Row("GET /runtime-variants", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /model-definitions/check",
        "ok ok ok ok ok ok ok 403 403",
        {"definition": "models: [{name: a}]"},
    ),
    # Members of a model store see its models, and may request imports.
    Row("GET /models", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /models/{model}", "ok ok 404 ok 404 404 ok 403 403"),
    Row("GET /models/{model}/readme", "ok ok 404 ok 404 404 ok 403 403"),
    Row("GET /models/{model}/versions", "ok ok 404 ok 404 404 ok 403 403"),
    Row("POST /models/{model}/refresh", "ok ok 404 ok 404 404 403 403 403", {}),
    Row("POST /models/{model}/clone", "ok ok 404 ok 404 404 403 403 403", {"name": "{fresh}"}),
    # The folder has no model definition.
    Row(
        "POST /models/{model}/deployment",
        "invalid-request invalid-request 404 invalid-request 404 404 403 403 403",
        {},
    ),
    # Pipelines contain commands, so monitors see only their own.
    Row("GET /pipeline-schema", "ok ok ok ok ok ok ok 403 403"),
    Row("POST /pipeline-checks", "ok ok ok ok ok ok 403 403 403", {"definition": ""}),
    Row("GET /pipelines", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /pipelines",
        "ok ok ok ok ok ok 403 403 403",
        {"definition": "version: 1\nname: {fresh}\ntasks: [{'name': check, 'kind': approval}]"},
    ),
    Row("GET /pipelines/{pipeline}", "ok ok 404 ok 404 404 404 403 403"),
    Row("GET /pipelines/{pipeline}/versions", "ok ok 404 ok 404 404 404 403 403"),
    Row(
        "PATCH /pipelines/{pipeline}",
        "403 403 404 ok 404 404 404 403 403",
        {"definition": "version: 1\nname: {fresh}\ntasks: [{'name': check, 'kind': approval}]"},
    ),
    Row("DELETE /pipelines/{pipeline}", "ok ok 404 ok 404 404 404 403 403"),
    Row("POST /pipelines/{pipeline}/runs", "403 403 404 ok 404 404 404 403 403", {}),
    Row("GET /pipeline-runs", "ok ok ok ok ok ok ok 403 403"),
    Row("GET /pipeline-runs/{pipeline_run}", "ok ok 404 ok 404 404 404 403 403"),
    Row("GET /pipeline-runs/{pipeline_run}/results", "ok ok 404 ok 404 404 404 403 403"),
    # The session belongs to the caller, who must be able to mount the folder.
    Row(
        "POST /pipeline-runs/{pipeline_run}/apps",
        "404 404 404 ok 404 404 404 403 403",
        {"app": "tensorboard"},
    ),
    Row("DELETE /pipeline-runs/{pipeline_run}", "ok ok 404 ok 404 404 404 403 403"),
    Row(
        "POST /pipeline-runs/{cancelled_run}/resumption",
        "403 403 404 ok 404 404 404 403 403",
        {},
    ),
    # The run has no such task.
    Row(
        "POST /pipeline-runs/{pipeline_run}/tasks/nothing/approval",
        "404 404 404 404 404 404 404 403 403",
        {"is_approved": True},
    ),
    Row("GET /pipeline-schedules", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /pipeline-schedules",
        "403 403 404 ok 404 404 404 403 403",
        {"pipeline": "{pipeline}", "name": "nightly", "start": "daily 02:00"},
    ),
    Row("GET /pipeline-schedules/{pipeline_schedule}", "ok ok 404 ok 404 404 404 403 403"),
    Row(
        "PATCH /pipeline-schedules/{pipeline_schedule}",
        "ok ok 404 ok 404 404 404 403 403",
        {"is_paused": True},
    ),
    Row("DELETE /pipeline-schedules/{pipeline_schedule}", "ok ok 404 ok 404 404 404 403 403"),
    Row("GET /pipeline-templates", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /pipeline-templates",
        "ok ok ok ok ok ok 403 403 403",
        {"definition": "version: 1\nname: {fresh}\ntasks: [{'name': check, 'kind': approval}]"},
    ),
    Row("GET /pipeline-templates/{pipeline_template}", "ok ok 404 ok 404 404 404 403 403"),
    Row("DELETE /pipeline-templates/{pipeline_template}", "ok ok 404 ok 404 404 404 403 403"),
    Row(
        "POST /pipeline-conversions",
        "ok ok ok ok ok ok 403 403 403",
        {"text": "version: 1\nname: a\ntasks: [{'name': check, 'kind': approval}]"},
    ),
    Row("GET /pipeline-triggers", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /pipeline-triggers",
        "403 403 404 ok 404 404 404 403 403",
        {"pipeline": "{pipeline}", "name": "push"},
    ),
    Row("GET /pipeline-triggers/{pipeline_trigger}", "ok ok 404 ok 404 404 404 403 403"),
    Row(
        "PATCH /pipeline-triggers/{pipeline_trigger}",
        "ok ok 404 ok 404 404 404 403 403",
        {"is_enabled": False},
    ),
    Row(
        "POST /pipeline-triggers/{pipeline_trigger}/secret",
        "403 403 404 ok 404 404 404 403 403",
        {},
    ),
    Row("DELETE /pipeline-triggers/{pipeline_trigger}", "ok ok 404 ok 404 404 404 403 403"),
    Row("GET /model-imports", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /model-imports",
        "ok ok 404 ok 404 404 403 403 403",
        {"repository": "org/tiny", "project": "{store}", "folder": "{fresh}"},
    ),
    Row("GET /model-imports/{model_import}", "ok ok 404 ok 404 404 ok 403 403"),
    Row("POST /model-imports/{model_import}/approval", "ok ok 404 403 404 404 403 403 403", {}),
    # The import has not failed.
    Row(
        "POST /model-imports/{model_import}/retry",
        "invalid-transition invalid-transition 404 invalid-transition 404 404 403 403 403",
        {},
    ),
    Row("DELETE /model-imports/{model_import}", "ok ok 404 ok 404 404 403 403 403"),
    Row("GET /folder-imports", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /folder-imports",
        "ok ok ok ok ok ok 403 403 403",
        {"repo": "https://example.org/a.git", "folder": "{fresh}"},
    ),
    Row(
        "POST /folder-imports/preview",
        "ok ok ok ok ok ok 403 403 403",
        {"repo": "https://example.org/a.git"},
    ),
    Row("GET /folder-imports/{folder_import}", "ok ok 404 ok 404 404 ok 403 403"),
    Row("DELETE /folder-imports/{folder_import}", "ok ok 404 ok 404 404 403 403 403"),
    Row("GET /gateway/routes", "403 403 403 403 403 403 403 403 403"),
    Row(
        "POST /gateway/reports",
        "403 403 403 403 403 403 403 403 403",
        {"gateway_id": "g", "report_id": "1"},
    ),
    Row("GET /session-templates", "ok ok ok ok ok ok ok 403 403"),
    Row(
        "POST /session-templates",
        "ok ok ok ok ok ok 403 403 403",
        {"name": "{fresh}", "request": {}},
    ),
    Row(
        "POST /session-templates",
        "ok ok ok 403 403 403 403 403 403",
        {"name": "{fresh}", "request": {}, "audience": "domain"},
    ),
    Row("GET /session-templates/{template}", "ok ok 404 ok 404 404 ok 403 403"),
    Row("PATCH /session-templates/{template}", "ok ok 404 ok 404 404 403 403 403", {}),
    Row("DELETE /session-templates/{template}", "ok ok 404 ok 404 404 403 403 403"),
    Row(
        "POST /sessions/{session}/launch",
        "403 403 403 403 403 403 403 404 403",
        {"user": "user", "server": "x"},
    ),
    Row("POST /sessions/{session}/started", "403 403 403 403 403 403 403 conflict 403", {}),
    Row("POST /sessions/{session}/exited", "403 403 403 403 403 403 403 ok 403", {}),
    Row("POST /sessions/{session}/detach", "403 403 403 403 403 403 403 ok 403"),
]

# Operations that need no sign-in; tests of the sign-in and of the health check cover them.
OPEN = {
    ("post", "/agent-joins"),
    ("get", "/health"),
    ("post", "/auth/token"),
    ("post", "/auth/password"),
    ("post", "/auth/code"),
    ("post", "/auth/code/redeem"),
    # Signed calls of other services.
    ("post", "/pipeline-triggers/(?P<key>[^/]+)/calls"),
    # Signed-in browsers only, without a token or keypair.
    ("post", "/me/authenticator"),
    ("post", "/me/authenticator/registration"),
    ("post", "/me/authenticator/removal"),
    ("post", "/me/authenticator/recovery-codes"),
}


def operations() -> dict[tuple[str, str], Any]:
    """Return all operations of the API by method and pattern."""
    return {
        (method, pattern): getattr(handler, method).operation
        for pattern, handler in ROUTES
        for method in METHODS
        if hasattr(getattr(handler, method), "operation")
    }


def operation_of(row: Row) -> tuple[str, str] | None:
    """Return method and pattern of the operation that a row calls, or None."""
    method, _, template = row.request.partition(" ")
    path = re.sub(r"\{\w+\}", "x", template.partition("?")[0])
    for pattern, _ in ROUTES:
        if re.fullmatch(pattern, path):
            return method.lower(), pattern
    return None


def test_table_lists_every_operation_that_requires_a_sign_in() -> None:
    declared = operations()
    listed = {operation_of(row) for row in TABLE}
    assert {key for key, operation in declared.items() if operation.is_open} == OPEN
    assert set(declared) - OPEN == listed


@pytest.fixture
async def factory(api: Api) -> ReusedResources:
    manager = api.world.manager
    await manager.folders.vfolders.start()
    spec = {"username": "other-admin", "email": "o@example.com", "role": "admin", "domain": "acme"}
    user = await manager.accounts.users.create(SUPERADMIN, {**spec, "projects": ["acme/default"]})
    api.world.keys["other-admin"] = user.keypair
    return await ReusedResources.of(api)


async def client_of(api: Api, role: str) -> Client:
    tokens = {"hub": HUB_TOKEN, "agent": AGENT_TOKEN}
    if role in tokens:
        return Client(api.url, Token(tokens[role]))
    return await api.client(ACCOUNTS[role])


async def outcome_of(http: httpx.AsyncClient, factory: ReusedResources, row: Row) -> str:
    """Send the request of a row and return its outcome; do not reuse resources that it changed."""
    method, _, template = row.request.partition(" ")
    path, body = await factory.fill(template), await factory.fill_body(row.body)
    options: dict[str, Any] = {} if body is None else {"json": body}
    # Do not read the body of a successful response: an event stream does not end.
    async with http.stream(method, path, **options) as response:
        if not response.is_error:
            if method not in ("GET", "HEAD"):
                factory.forget(row.request, row.body)
            return "ok"
        await response.aread()
    # The response to a HEAD request has no body.
    code = "" if method == "HEAD" else str(response.json()["error"])
    if code in ("", "not-signed-in", "forbidden", "not-found"):
        return str(response.status_code)
    return code


@pytest.mark.parametrize("role", ROLES)
async def test_operations_have_the_listed_outcomes_for_each_role(
    api: Api, factory: ReusedResources, role: str
) -> None:
    column = ROLES.index(role)
    errors = []
    async with await client_of(api, role) as client:
        for row in TABLE:
            expected = row.outcomes.split()[column]
            outcome = await outcome_of(client.http, factory, row)
            if outcome != expected:
                errors.append(f"{row.request} {row.body or ''}: {outcome}, expected {expected}")
    assert not errors, "\n".join(errors)


async def test_every_listed_operation_requires_a_sign_in(
    api: Api, factory: ReusedResources
) -> None:
    errors = []
    async with httpx.AsyncClient(base_url=f"{api.url}/api/v1") as http:
        for row in TABLE:
            outcome = await outcome_of(http, factory, row)
            if outcome != "401":
                errors.append(f"{row.request}: {outcome}")
    assert not errors, "\n".join(errors)
