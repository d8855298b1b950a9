"""What a run has used up: the figures of its requests, added."""

from typing import Final, Literal

from engine_assistant.host.model import Usage
from engine_assistant.model.usage import Figure, Provenance
from engine_assistant.model.usage import Usage as Spent

__all__ = ["Spent", "added"]

_PROVENANCE: Final = {"reported": Provenance.REPORTED, "estimated": Provenance.COMPUTED}

_Name = Literal["input", "output", "reasoning", "cache_read", "cache_write"]
_NAMES: Final[tuple[_Name, ...]] = ("input", "output", "reasoning", "cache_read", "cache_write")


def added(spent: Spent | None, usage: Usage | None) -> Spent | None:
    """Return what a run has used up after one more request; None if nothing was ever told."""
    told = {} if usage is None else _figures(usage)
    before = {} if spent is None else dict(spent)
    figures = {name: _sum(before.get(name), told.get(name)) for name in _NAMES}
    return Spent.model_validate(figures) if any(figures.values()) else None


def _figures(usage: Usage) -> dict[_Name, Figure]:
    provenance = _PROVENANCE[usage.provenance]
    told: dict[_Name, int | None] = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "reasoning": usage.reasoning_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
    }
    return {
        name: Figure(value=value, provenance=provenance)
        for name, value in told.items()
        if value is not None
    }


def _sum(one: Figure | None, other: Figure | None) -> Figure | None:
    """Return both together: what was computed in part was computed."""
    if one is None or other is None:
        return one or other
    computed = Provenance.COMPUTED in (one.provenance, other.provenance)
    return Figure(
        value=one.value + other.value,
        provenance=Provenance.COMPUTED if computed else Provenance.REPORTED,
    )
