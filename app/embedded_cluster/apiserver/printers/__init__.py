"""What `kubectl get` shows, kind by kind: columns, and the cells of a row, as Kubernetes 1.36 words them."""
