"""What people may ask the running service: why a pod waits, what devices there are, who holds them, what is wrong, what
would be if.
"""
