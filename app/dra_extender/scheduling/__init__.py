"""The extender verbs as use cases: filter, prioritize, preempt and bind, and what keeps them honest in between.

Reaches the API server only through the protocols in `ports`; everything else is decided on what the watches brought.
"""
