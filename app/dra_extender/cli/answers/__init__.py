"""What commands answer: a module for each, called as the command, and what they share.

They load the client, the compiler and YAML, so a command imports them when it runs, and not before.
"""
