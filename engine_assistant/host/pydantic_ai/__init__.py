"""Models of the large providers, through the clients that pydantic-ai brings.

`PydanticAIModel` takes any of its models and none of its agents: the conversation, the tools and
the approvals stay ours. It needs `pip install 'engine-assistant[host]'`.
"""

try:
    import pydantic_ai.direct  # noqa: F401 - whether it is there at all
except ModuleNotFoundError as missing:
    if missing.name != "pydantic_ai":
        raise
    raise ModuleNotFoundError(
        "this needs an extra: pip install 'engine-assistant[host]'", name=missing.name
    ) from None

from engine_assistant.host.pydantic_ai.adapter import PydanticAIModel

__all__ = ["PydanticAIModel"]
