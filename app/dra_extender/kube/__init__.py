"""Talking to the API server: credentials, requests, list and watch, writes, events, the leader lease.

Raw bytes travel; objects are the frozen structs of `api`. Every failure is one of `api.errors`.
"""
