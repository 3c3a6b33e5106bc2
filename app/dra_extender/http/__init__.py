"""The service as HTTP: the extender verbs for kube-scheduler, probes and metrics, insight for people."""
