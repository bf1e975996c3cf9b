"""Start, stop and reconcile the servers of sessions through JupyterHub's REST API."""
