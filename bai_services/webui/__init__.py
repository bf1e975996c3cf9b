"""The web UI: its sources in ``frontend``, and the built files that the manager serves."""
