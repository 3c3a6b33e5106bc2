"""Field errors of the kinds of resource.k8s.io and of pods, as the API server of Kubernetes 1.36 finds them."""
