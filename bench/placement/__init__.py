"""Placement quality: how much of a cluster's GPUs each policy allocates while pods keep coming."""
