"""What people read on our pages, in four languages; ``catalogue`` loads it."""
