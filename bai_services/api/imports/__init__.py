"""Routes of imports into folders."""
