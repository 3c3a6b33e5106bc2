"""Which of the nodes and devices that fit are the best ones: policies, and the state that they judge."""
