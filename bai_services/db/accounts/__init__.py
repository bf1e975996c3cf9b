"""Users, domains, projects, roles, keypairs, policies and sign-in."""
