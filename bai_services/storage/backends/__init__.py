"""File systems that a storage host can use."""
