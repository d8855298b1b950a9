"""What a run has used up: the figures of its requests, added, as far as they were told."""

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Final

from engine_assistant.host.model import Cost, Figure, Provenance, Usage

__all__ = ["total"]

_TOKENS: Final = ("input", "output", "reasoning", "cache_read", "cache_write")

_EXACTLY: Final = Context(prec=40)
"""An amount has 18 digits before the point and 18 behind it."""


def total(told: Sequence[Usage]) -> Usage | None:
    """Return what all of it comes to; None if nothing was told."""
    tokens = {name: _tokens([getattr(one, name) for one in told]) for name in _TOKENS}
    figures = {**tokens, "cost": _cost([one.cost for one in told])}
    return Usage.model_validate(figures) if any(figures.values()) else None


def _tokens(told: Sequence[Figure | None]) -> Figure | None:
    known = [one for one in told if one is not None]
    if not known:
        return None
    return Figure(value=sum(one.value for one in known), provenance=_of(known))


def _cost(told: Sequence[Cost | None]) -> Cost | None:
    """Return the sum; amounts in two currencies have none."""
    known = [one for one in told if one is not None]
    if len({one.currency for one in known}) != 1:
        return None
    amount = Decimal()
    for one in known:
        amount = _EXACTLY.add(amount, Decimal(one.value))
    return Cost(value=f"{amount:f}", currency=known[0].currency, provenance=_of(known))


def _of(known: Sequence[Figure | Cost]) -> Provenance:
    """Return who says so: what was computed in part was computed."""
    computed = any(one.provenance is Provenance.COMPUTED for one in known)
    return Provenance.COMPUTED if computed else Provenance.REPORTED
