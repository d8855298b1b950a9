"""The real clients of the providers, pointed at a server on this machine."""

from collections.abc import Callable, Mapping
from typing import Final

from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.groq import GroqModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.groq import GroqProvider
from pydantic_ai.providers.openai import OpenAIProvider

from engine_assistant.host.pydantic_ai import PydanticAIModel

__all__ = ["CLIENTS", "Client", "PydanticAIModel"]

Client = Callable[[str, str], Model]
"""A model by the address of its server and its name."""

KEY: Final = "not-a-key"

CLIENTS: Final[Mapping[str, Client]] = {
    "openai-chat": lambda url, name: OpenAIChatModel(
        name, provider=OpenAIProvider(base_url=url, api_key=KEY)
    ),
    "openai-responses": lambda url, name: OpenAIResponsesModel(
        name, provider=OpenAIProvider(base_url=url, api_key=KEY)
    ),
    "anthropic": lambda url, name: AnthropicModel(
        name, provider=AnthropicProvider(base_url=url, api_key=KEY)
    ),
    "google": lambda url, name: GoogleModel(
        name, provider=GoogleProvider(base_url=url, api_key=KEY)
    ),
    "groq": lambda url, name: GroqModel(name, provider=GroqProvider(base_url=url, api_key=KEY)),
}
