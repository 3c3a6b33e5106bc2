"""The rules of each kind: what is defaulted, kept, counted and refused."""
