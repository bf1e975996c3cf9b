"""Virtual folders: files, uploads, grants, invitations, quotas and storage hosts."""
