"""Imports into folders, and the loop that runs all imports."""
