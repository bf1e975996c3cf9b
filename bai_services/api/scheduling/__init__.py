"""REST handlers of the scheduler that belong to no other concept."""
