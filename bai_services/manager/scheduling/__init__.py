"""The scheduler: admission checks, queue, placement, estimates and the lease."""
