"""Which devices a pod's claims get on a node: requests, search and its rules, result, tally. Pure: nothing given
to it is changed.
"""
