"""Filter, prioritize and preempt as use cases, what they offer, and the explanation of what they refuse."""
