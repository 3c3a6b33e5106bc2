"""Field errors of the kinds whose specs are checked here, as the API server of Kubernetes 1.37 finds them."""
