"""Commands for usage statistics."""
