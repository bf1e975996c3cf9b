"""Sessions: requests, lifecycle, kernels, launch, logs, callbacks, time limits and usage."""
