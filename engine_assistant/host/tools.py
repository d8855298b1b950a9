"""A tool: a typed function, and what the host says about it."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import getdoc
from typing import Final, Literal, TypeAlias, get_args

from engine_assistant import tool_version
from engine_assistant.host.messages import JsonValue
from engine_assistant.host.model import ToolDefinition
from engine_assistant.host.signature import Arguments, Input, Signature

__all__ = ["MASK", "Approval", "Effect", "Policy", "Preview", "Tool", "tool"]

Effect: TypeAlias = Literal["read", "write", "destructive"]
"""What a tool does to the world: looks, changes, or changes what cannot be changed back."""

Approval: TypeAlias = Literal["never", "always"]
"""Whether a person must approve a call. What is not said is refused."""

Policy: TypeAlias = Callable[[Input], Approval | None]
"""Says it for one bound input. It must depend on nothing else that changes within a turn."""

Preview: TypeAlias = Callable[[Input], str]
"""Says in a line what a call would do. It sees no sensitive argument."""

MASK: Final = "***"
"""What is shown in the place of a sensitive argument."""

# What the providers that we know accept as a tool's name.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool:
    """Something the model may ask for.

    Attributes:
        name: 1 to 64 letters, digits, underscores and hyphens.
        description: what the model is told of it.
        arguments: what it takes, and the way to it.
        effect: what it does to the world.
        approval: whether a person must approve; None refuses every call.
        repeatable: running it twice does no harm, so an `unknown` call may be tried again.
        timeout: seconds that it may take; None is no limit.
        sensitive: arguments that are masked wherever people look.
        preview: says in a line what a call would do.

    Raises:
        ValueError: something of this cannot be.
    """

    name: str
    description: str
    arguments: Arguments = field(repr=False)
    effect: Effect
    approval: Approval | Policy | None
    repeatable: bool
    timeout: float | None
    sensitive: frozenset[str] = frozenset()
    preview: Preview | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what would only be found out when the model calls."""
        if not _NAME.fullmatch(self.name):
            raise ValueError("a tool's name is 1 to 64 letters, digits, underscores and hyphens")
        if self.effect not in get_args(Effect):
            raise ValueError(f"{self.name}: effect must be one of {', '.join(get_args(Effect))}")
        if isinstance(self.approval, str) and self.approval not in get_args(Approval):
            raise ValueError(
                f"{self.name}: approval must be one of {', '.join(get_args(Approval))}"
            )
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"{self.name}: timeout must be above 0")
        unknown = self.sensitive - self._properties
        if unknown:
            raise ValueError(f"{self.name}: it has no argument {', '.join(sorted(unknown))}")

    @property
    def _properties(self) -> frozenset[str]:
        properties = self.arguments.schema.get("properties")
        return frozenset(properties) if isinstance(properties, dict) else frozenset()

    @cached_property
    def definition(self) -> ToolDefinition:
        """What the model is told."""
        return ToolDefinition(
            name=self.name, description=self.description, schema=self.arguments.schema
        )

    @cached_property
    def version(self) -> str:
        """What an approval binds: a digest of the name, the schema and the effect."""
        return tool_version(self.name, self.arguments.schema, self.effect)

    def masked(self, input: Input) -> Mapping[str, JsonValue]:
        """Return an input with its sensitive arguments masked: for cards, logs and traces."""
        return {name: MASK if name in self.sensitive else value for name, value in input.items()}


def tool(
    *,
    effect: Effect,
    approval: Approval | Policy | None = None,
    name: str | None = None,
    description: str | None = None,
    repeatable: bool | None = None,
    timeout: float | None = 60.0,
    sensitive: Collection[str] = (),
    preview: Preview | None = None,
) -> Callable[[Callable[..., object]], Tool]:
    """Make a tool of a function, sync or async, whose parameters all have types.

    The name and the description are those of the function unless given. A parameter of type
    `ToolContext` or `CallId` is not shown to the model. `repeatable` is what `effect` says unless
    given: looking is. A sync function runs in a thread, which no timeout can stop.

    Raises:
        TypeError: a parameter has no type, or cannot be given by name.
        ValueError: as `Tool` does.
    """

    def decorate(function: Callable[..., object]) -> Tool:
        return Tool(
            name=name or function.__name__,
            description=description or getdoc(function) or "",
            arguments=Signature(function),
            effect=effect,
            approval=approval,
            repeatable=effect == "read" if repeatable is None else repeatable,
            timeout=timeout,
            sensitive=frozenset(sensitive),
            preview=preview,
        )

    return decorate
