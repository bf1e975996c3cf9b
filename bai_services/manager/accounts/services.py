"""Build the account services."""

from __future__ import annotations

from dataclasses import dataclass

from ..context import ManagerContext
from ..hub.client import Hub
from ..mail.mails import Mails
from ..metrics import Metrics
from ..settings import Settings
from .account_deletion import AccountDeletions
from .browser_sign_ins import BrowserSignIns
from .callers import Callers
from .domains import Domains
from .external_sign_ins import ExternalSignIns
from .keypair_secrets import KeypairSecrets
from .keypairs import Keypairs
from .lockouts import Lockouts
from .me import Me
from .one_time_codes import OneTimeCodes
from .password_resets import PasswordResets
from .passwords import PasswordHashes
from .policies import Policies
from .projects import Projects
from .request_limits import RequestLimits
from .sign_in import SignIns
from .sign_outs import TokenRevocations
from .sign_up_invitations import SignUpInvitations
from .sign_ups import SignUps
from .ssh_keys import SshKeys
from .users import Users


@dataclass(frozen=True, slots=True)
class AccountServices:
    """Services for users, domains, projects, keypairs, policies and sign-in."""

    callers: Callers
    me: Me
    domains: Domains
    projects: Projects
    users: Users
    keypairs: Keypairs
    keypair_policies: Policies
    user_policies: Policies
    project_policies: Policies
    ssh_keys: SshKeys
    browser_sign_ins: BrowserSignIns
    sign_ins: SignIns
    one_time_codes: OneTimeCodes
    external_sign_ins: ExternalSignIns
    token_revocations: TokenRevocations
    password_resets: PasswordResets
    sign_ups: SignUps
    deletions: AccountDeletions
    sign_up_invitations: SignUpInvitations


def account_services(
    context: ManagerContext, settings: Settings, hub: Hub, metrics: Metrics, mails: Mails
) -> AccountServices:
    """Build the services and pass them their dependencies."""
    secrets = KeypairSecrets(settings.key)
    passwords = PasswordHashes(settings.password_memory_kib, settings.password_rounds)
    lockouts = Lockouts(context.database, settings.key)
    limits = RequestLimits(context.database, settings.key)
    domains = Domains(context)
    projects = Projects(context, domains)
    users = Users(context, domains, projects, passwords, secrets, lockouts, mails)
    token_revocations = TokenRevocations(context.database, hub)
    one_time_codes = OneTimeCodes(
        context, settings.key, lockouts, settings.one_time_codes, settings.brand.name
    )
    sign_ins = SignIns(
        context,
        passwords,
        hub,
        token_revocations,
        metrics,
        lockouts,
        one_time_codes,
        token_seconds=settings.cli_token_seconds,
        max_password_age_days=settings.password_max_age_days,
    )
    return AccountServices(
        callers=Callers(context.database, context.clock, secrets),
        me=Me(context.database),
        domains=domains,
        projects=projects,
        users=users,
        keypairs=Keypairs(context, users, secrets),
        keypair_policies=Policies("keypair", context),
        user_policies=Policies("user", context),
        project_policies=Policies("project", context),
        ssh_keys=SshKeys(context),
        browser_sign_ins=BrowserSignIns(context, hub, token_revocations),
        sign_ins=sign_ins,
        one_time_codes=one_time_codes,
        external_sign_ins=ExternalSignIns(
            context, users, one_time_codes, lockouts, metrics, sign_ins
        ),
        deletions=AccountDeletions(context, sign_ins, users),
        token_revocations=token_revocations,
        password_resets=PasswordResets(context, mails, passwords, limits, token_revocations),
        sign_ups=SignUps(context, mails, passwords, limits, secrets),
        sign_up_invitations=SignUpInvitations(context, domains, projects),
    )
