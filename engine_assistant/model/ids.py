"""Identities that the engine mints itself. Hosts bring their own for tenants, people and calls."""

import secrets

from ulid import ULID

__all__ = ["new_id", "new_nonce"]


def new_id() -> str:
    """Return a fresh ULID: 26 characters, unique without asking anybody."""
    return str(ULID())


def new_nonce() -> str:
    """Return 32 hex digits of fresh randomness, so that no two requests share a digest."""
    return secrets.token_hex(16)
