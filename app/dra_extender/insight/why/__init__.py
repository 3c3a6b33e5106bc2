"""Why a pod does not run, and what would help: one answer for kubectl, the terminal, the page and events."""
