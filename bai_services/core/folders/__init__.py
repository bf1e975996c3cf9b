"""Folders: vfolders, files, uploads, grants, invitations, quotas and storage hosts."""
