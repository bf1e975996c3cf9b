"""Texts of our pages in four languages; ``catalogue`` loads them."""
