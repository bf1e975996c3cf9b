"""Vendor-specific code for what the table of accelerators cannot express."""
