"""What commands answer, and what these answers share.

The modules load the client, the compiler and YAML, so a command imports its module when it runs, and not before.
"""
