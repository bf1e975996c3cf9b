"""Sessions: creation, lifecycle, kernels, logs, templates, callbacks, dependencies."""
