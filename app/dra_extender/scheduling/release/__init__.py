"""Taking allocations back that nobody uses."""
