"""Accounts: users, domains, projects, roles, keypairs, policies and sign-in."""
