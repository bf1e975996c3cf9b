"""Commands for imports into folders."""
