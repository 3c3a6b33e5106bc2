"""Bind: from one decision to the stored claims and the binding, or back to where it began."""
