"""Pages of the documentation that are made of the sources: `make reference` writes them, a test finds what is stale."""
