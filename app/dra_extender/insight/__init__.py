"""Questions that people ask: why, what if, headroom, compaction, device report. Asking changes no state."""
