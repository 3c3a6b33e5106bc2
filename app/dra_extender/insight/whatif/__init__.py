"""What if nodes, slices or classes were added, nodes drained or pods gone: who would fit, and who would not?"""
