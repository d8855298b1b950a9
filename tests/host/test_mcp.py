"""Tools of an MCP server: the host says what they do, and the server does not."""

import sys
from pathlib import Path

import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset

from engine_assistant import tool_version
from engine_assistant.host import (
    MASK,
    AwaitingApproval,
    PreparedCall,
    ToolCall,
    ToolFailed,
    ToolRegistry,
    ToolReturned,
)
from engine_assistant.host.mcp import CALL_ID, Classified, mcp_tools
from tests.host.stage import LONGEST, call, run
from tests.host.test_registry import STEP

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
CLASSIFIED = {
    "refund": Classified(effect="write", approval="always", sensitive={"pin"}, name="shop-refund"),
    "fail": Classified(effect="read", approval="never"),
}


@pytest.mark.guarantee("G-HOST-23", "G-HOST-26", "G-HOST-37")
def test_tools_of_a_server_are_what_the_host_says_of_them() -> None:
    async def work() -> None:
        program = StdioTransport(sys.executable, [SCRIPT, CALL_ID])
        async with MCPToolset(program, init_timeout=LONGEST) as server:
            with pytest.raises(ValueError, match="refnud"):
                await mcp_tools(server, {"refnud": CLASSIFIED["fail"]})
            tools = ToolRegistry(await mcp_tools(server, CLASSIFIED))
            _are_described(tools)
            await _run_when_they_may(tools)
            await _fail_for_the_model_to_read(tools)

    run(work())


def _are_described(tools: ToolRegistry) -> None:
    assert [one.name for one in tools.definitions] == ["shop-refund", "fail"]
    refund = tools.get("shop-refund")
    assert refund is not None
    assert refund.description == "Refund an order."
    assert set(refund.definition.schema["properties"]) == {"order", "pin"}
    assert refund.version == tool_version("shop-refund", refund.arguments.schema, "write")


async def _run_when_they_may(tools: ToolRegistry) -> None:
    one = call("shop-refund", order=7, pin="4711")
    assert await tools.execute(one, STEP) == AwaitingApproval()
    prepared = tools.prepare(one)
    assert isinstance(prepared, PreparedCall)
    assert prepared.card.input == {"order": 7, "pin": MASK}
    # The call's id reaches the server, as the key under which it happens once.
    assert await tools.run(prepared, STEP) == ToolReturned({"order": 7, "key": one.call_id})
    # The server calls this one read-only. The host has not said so.
    came = await tools.execute(call("drop_everything"), STEP)
    assert isinstance(came, ToolFailed)
    assert came.code == "unknown_tool"


async def _fail_for_the_model_to_read(tools: ToolRegistry) -> None:
    failed = await tools.execute(call("fail"), STEP)
    assert isinstance(failed, ToolFailed)
    assert failed.code == "tool_failed"
    assert "There is no such order." in failed.message

    wrong = tools.prepare(call("shop-refund", order="seven", pin="4711"))
    assert isinstance(wrong, PreparedCall)
    came = await tools.run(wrong, STEP)
    assert isinstance(came, ToolFailed)
    for nothing in (None, [], "order 7"):
        refused = tools.prepare(ToolCall("fail", nothing))
        assert isinstance(refused, ToolFailed)
        assert refused.code == "invalid_arguments"
