"""Whose eviction would free the devices that a pod lacks: what may go, the fewest of it, and where it hurts least."""
