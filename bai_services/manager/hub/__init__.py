"""Start, stop and reconcile the servers of sessions, and create tokens, through the Hub's API."""
