"""All devices of a cluster, their states, and the claims that hold them."""
