"""The demo: one run of the embedded cluster and the service, and how it looks on a terminal."""
