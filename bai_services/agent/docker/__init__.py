"""Sessions as containers of a Docker engine."""
