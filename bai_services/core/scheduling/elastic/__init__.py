"""Growth and shrinking of elastic sessions, as a pure function of the group's state.

Waiting sessions have precedence: while any session waits for capacity, no session grows. Elastic
sessions shrink only if a waiting session can then start. Under a constant load, the first
call of ``decide`` returns all changes, and the next call returns none.

For each waiting session, elastic sessions lose as little as possible, within the limits
``MAX_STEPS``, ``MAX_COMPARED`` and ``MAX_GIVERS`` of the search.
"""
