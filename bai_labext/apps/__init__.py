"""The apps of a session: catalogue, start, stop and sharing."""
