"""Tools of MCP servers, through pydantic-ai's client. It needs `engine-assistant[mcp]`.

What a server says of its own tools decides nothing here: the host says for each what it does and
whether a person must approve. A tool that the host does not name is not offered, and a call of it
is refused.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from engine_assistant.host.messages import JsonValue
from engine_assistant.host.registry import ToolRefused
from engine_assistant.host.signature import ArgumentsRefused, Input, ToolContext
from engine_assistant.host.tools import Approval, Effect, Policy, Preview, Tool
from engine_assistant.model.codec import JsonRefused, check_json

try:
    from pydantic_ai.exceptions import ModelRetry, ToolFailed
    from pydantic_ai.mcp import MCPToolset
except ImportError as missing:
    raise ModuleNotFoundError(
        "this needs an extra: pip install 'engine-assistant[mcp]'", name=missing.name
    ) from None

__all__ = ["CALL_ID", "Classified", "mcp_tools"]

CALL_ID = "engine-assistant/call-id"
"""Where a server finds the call's id, in the `_meta` of a request: its idempotency key."""

Deps = TypeVar("Deps")


@dataclass(frozen=True, kw_only=True)
class Classified:
    """What the host says about one tool of a server. The fields mean what those of `Tool` do.

    `name` is what the model calls it, if that is not what its server does.
    """

    effect: Effect
    approval: Approval | Policy
    name: str | None = None
    repeatable: bool = False
    timeout: float | None = 60.0
    sensitive: Collection[str] = ()
    preview: Preview | None = None


async def mcp_tools(
    server: MCPToolset[Deps], classified: Mapping[str, Classified]
) -> tuple[Tool, ...]:
    """Return the tools of a server that the host has classified, by the server's names for them.

    Ask again after the server has changed its tools: their versions change with their schemas. Keep
    the server open (`async with server`) while tools run; otherwise each call connects anew.

    Raises:
        ValueError: the server has no tool of a name, or `Tool` refuses it.
    """
    found = {one.name: one for one in await server.list_tools()}
    unknown = classified.keys() - found.keys()
    if unknown:
        raise ValueError(f"the server has no tool {', '.join(sorted(unknown))}")
    return tuple(
        Tool(
            name=said.name or name,
            description=found[name].description or "",
            # The wire's own name for it: the SDK's has changed between versions.
            arguments=_Remote(server, name, found[name].model_dump(by_alias=True)["inputSchema"]),
            effect=said.effect,
            approval=said.approval,
            repeatable=said.repeatable,
            timeout=said.timeout,
            sensitive=frozenset(said.sensitive),
            preview=said.preview,
        )
        for name, said in classified.items()
    )


class _Remote:
    """Arguments that a server checks itself: to us they are any JSON object."""

    def __init__(self, server: MCPToolset[Deps], name: str, schema: dict[str, JsonValue]) -> None:
        check_json(schema)
        self._server = server
        self._name = name
        self._schema = schema

    @property
    def schema(self) -> dict[str, JsonValue]:
        return self._schema

    def bind(self, input: JsonValue) -> dict[str, JsonValue]:
        if not isinstance(input, dict):
            raise ArgumentsRefused("arguments: an object is needed")
        try:
            check_json(input)
        except JsonRefused as error:
            raise ArgumentsRefused(error.message) from None
        return input

    async def call(self, input: Input, context: ToolContext) -> object:
        try:
            result: object = await self._server.direct_call_tool(
                self._name, dict(input), metadata={CALL_ID: context.call_id}
            )
        except (ModelRetry, ToolFailed) as failed:
            # The protocol's own way to tell the model: the text was written for it.
            raise ToolRefused("tool_failed", failed.message) from None
        return result
