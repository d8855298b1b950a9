"""The three keys a host grants. Everything an operation asks for is one of these."""

from typing import Final

__all__ = ["AUDIT", "RUN", "USE"]

USE: Final = "assistant:use"
"""Open threads, read one's own, send messages, answer approvals. For people."""

AUDIT: Final = "assistant:audit"
"""Read other people's threads, never write to them. Only ever beside `USE`."""

RUN: Final = "assistant:run"
"""Hold the lease, write the assistant's side, claim executions. For system principals only."""
