"""What cuts off hopeless parts of a search: each proof is a relaxation, so a `no` is a proof."""
