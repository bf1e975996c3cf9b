"""Imports of repositories, archives and files into folders, and the lifecycle of all imports."""
