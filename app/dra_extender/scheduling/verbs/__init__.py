"""The verbs filter, prioritize and preempt."""
