"""What devices exist and who holds them: inventory, pools as a node sees them, ledger. Pure; one writer, the event
loop.
"""
