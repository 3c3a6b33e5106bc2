"""Worker processes: questions that are too large for the event loop, answered with a deadline and a memory limit.

`pool` starts and ends processes, `process` is one of them as its parent sees it, `__main__` is what runs in it, and
`wire` is what they say to each other.
"""
