"""Typed objects: what the API server and kube-scheduler send, and what we send back.

Frozen msgspec structs with only the fields this project reads. Decoding is the only place where the JSON of Kubernetes
is interpreted: quantities become exact numbers, versions become typed text, lists become tuples. Nothing here does I/O.
"""
