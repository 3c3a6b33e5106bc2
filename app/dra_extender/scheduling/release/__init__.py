"""Releasing unused allocations."""
