"""The demo: one run of the embedded cluster with the service beside it, and how it looks on a terminal."""
