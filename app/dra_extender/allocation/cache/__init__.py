"""The equivalence cache: nodes with equal equivalence keys share one result."""
