"""Sign-in with OpenID Connect providers (authorization code flow with PKCE)."""
