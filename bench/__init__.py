"""Where the time and the memory go: run with `python -m bench`. Nothing here is imported by the service."""
