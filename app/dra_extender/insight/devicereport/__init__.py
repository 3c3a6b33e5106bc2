"""All devices of a cluster: in what state they are, and who holds them."""
