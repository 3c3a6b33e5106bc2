"""Validating admission policies: compiled, matched with requests, and enforced."""
