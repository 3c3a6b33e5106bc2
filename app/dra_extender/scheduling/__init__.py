"""The extender verbs filter, prioritize, preempt and bind, and the controllers that run between their calls.

Decisions are made on the state that the watches delivered. All calls of the API server go through `ports`.
"""
