"""Placement policies, which choose among the nodes and devices that fit, and the state that they compare."""
