"""Nominating pods ahead of kube-scheduler's queue for the node they fit on, so that it looks at that one first."""
