"""Transfers: uploads, downloads and archives."""
