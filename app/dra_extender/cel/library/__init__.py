"""The function libraries of a selector, one module per library. `environment` collects them."""
