"""Code of single vendors that the table of accelerators cannot express."""
