"""The exit statuses of all commands."""

from __future__ import annotations

from typing import Final

YES: Final = 0
"""It fits, there are some, all is well."""
NO: Final = 1
"""It does not fit, there is nothing, something is violated."""
FAILED: Final = 2
"""The question cannot be answered: it names what does not exist, or nobody could be asked."""
