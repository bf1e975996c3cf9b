"""Commands for the user's own account: sign-in, password, SSH keys, limits and usage."""
