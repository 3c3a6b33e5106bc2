"""Preemption for devices as a question: which pods to evict, on which node, with the fewest victims."""
