"""Nominating pods ahead of kube-scheduler's queue, so that it tries the node on which they fit first."""
