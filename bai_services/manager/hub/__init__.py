"""The manager's use of JupyterHub's REST API."""
