"""Apps of sessions and their shares."""
