"""Advice on which pods could be evicted, and would fit elsewhere, to make room. Nothing here acts."""
