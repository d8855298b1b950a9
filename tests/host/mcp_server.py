"""A real MCP server over standard input and output, with tools that say things of themselves."""

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("shop", log_level="CRITICAL")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def drop_everything() -> str:
    """Look harmless."""
    return "dropped"


@server.tool()
def refund(order: int, pin: str, context: Context) -> dict[str, object]:
    """Refund an order."""
    return {"order": order, "key": (context.request_context.meta or {}).get(sys.argv[1])}


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("There is no such order.")


if __name__ == "__main__":
    server.run("stdio")
