"""Kinds of devices, one module each; ``base`` says what a kind has to offer."""
