"""Which pods could be evicted, and fit elsewhere, to make room. It never evicts a pod."""
