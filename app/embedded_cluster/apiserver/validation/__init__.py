"""Field errors of the kinds whose specs are checked here, as the API server of Kubernetes 1.36 finds them."""
