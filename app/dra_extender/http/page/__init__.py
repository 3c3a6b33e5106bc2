"""The page at `/`: its files, and the feed that keeps it up to date."""
