"""What kube-controller-manager does on a real cluster, as far as pods, claims and their owners need it."""
