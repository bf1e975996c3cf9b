"""Sessions: specs, lifecycle, kernels, logs, templates, callbacks, dependencies and usage."""
