"""bai-hub services: manager, agent and command line."""

__version__ = "0.1.0"
