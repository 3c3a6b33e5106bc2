"""When two nodes must get the same answer: fingerprints of nodes, and the verdicts kept under them."""
