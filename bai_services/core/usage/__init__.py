"""Usage statistics: records of allocated and queued time, their hourly totals, and reports."""
