"""Where the time and the memory go: run with `python -m bench`. The service imports nothing from here."""
