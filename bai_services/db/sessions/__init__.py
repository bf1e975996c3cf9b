"""Sessions: creation, lifecycle, kernels, limits, usage, templates, callbacks and dependencies."""
