"""The audit of the scheduler's usage counters."""
