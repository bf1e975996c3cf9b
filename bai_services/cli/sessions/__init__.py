"""Commands for sessions and session templates."""
