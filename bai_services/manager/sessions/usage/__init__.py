"""Resource usage of sessions: record samples, and read them as time series."""
