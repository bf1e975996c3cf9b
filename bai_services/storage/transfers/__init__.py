"""Uploads, downloads and archives."""
