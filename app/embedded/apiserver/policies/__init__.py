"""Validating admission policies: which are accepted, and what they make of a request."""
