"""What-if requests: which pods would fit after hypothetical changes."""
