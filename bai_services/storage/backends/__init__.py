"""Storage backends for different file systems."""
