"""Commands for announcements and maintenance."""
