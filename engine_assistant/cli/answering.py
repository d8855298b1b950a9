"""What a command answers with: a model by its name, and the tools of a module."""

import importlib
import os
import re
import sys
from dataclasses import dataclass
from typing import Final

from engine_assistant import Internal, ValidationFailed
from engine_assistant.cli.screen import printable
from engine_assistant.host import Model, ToolRegistry

__all__ = ["DEMO", "Answering", "answering"]

DEMO: Final = "demo"
"""The name of what is no model."""

# Some providers name other ways between the variable and the word.
_KEY: Final = re.compile(r"`([A-Z][A-Z0-9_]+)`.* environment variable")


@dataclass(frozen=True, slots=True)
class Answering:
    """A model, what people are told of it, and what it may call."""

    name: str
    model: Model
    tools: ToolRegistry


def answering(model: str, tools: str | None) -> Answering:
    """Find what is to answer.

    Args:
        model: `provider:name`, or `demo`.
        tools: `module:registry`; None is no tools, or those of the demo.

    Raises:
        ValidationFailed: there is no such model, module or registry.
        Internal: a package or a key is missing.
    """
    if model == DEMO:
        if tools is not None:
            raise ValidationFailed("The demo brings its own tools.", path="tools")
        from engine_assistant.cli.chat.story import Story, story_tools

        return Answering("a fixed story, which is no model", Story(), story_tools())
    registry = ToolRegistry([]) if tools is None else _registry(tools)
    return Answering(model, _model(model), registry)


def _model(name: str) -> Model:
    try:
        from engine_assistant.host.pydantic_ai import PydanticAIModel
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "pydantic_ai":
            raise
        raise Internal(
            "Models need an extra: pip install 'engine-assistant[host]'.", extra="host"
        ) from None
    from pydantic_ai.exceptions import UserError

    try:
        return PydanticAIModel(name)
    except UserError as error:
        key = _KEY.search(str(error))
        if key is not None:
            raise Internal(
                f"The model {printable(name)} needs the environment variable {key[1]}.",
                missing=True,
            ) from None
        raise ValidationFailed(
            f"There is no model {printable(name)}. Name one as provider:name, like openai:gpt-5,"
            " or try demo, which needs none.",
            path="model",
        ) from None
    except ImportError:
        provider = printable(name.partition(":")[0])
        raise Internal(
            f"The client of {provider} is missing: pip install 'pydantic-ai-slim[{provider}]'.",
            extra="host",
        ) from None
    except Exception as error:  # noqa: BLE001 - clients have many ways to be set up wrongly
        raise Internal(
            f"The client of {printable(name)} cannot be set up ({type(error).__name__})."
            " Is its key in the environment?",
            missing=True,
        ) from None


def _registry(path: str) -> ToolRegistry:
    shown = printable(path)
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValidationFailed(
            f"Tools are named as module:registry, and not as {shown}.", path="tools"
        )
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found: object = importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and _leads_to(error.name, module):
            raise ValidationFailed(
                f"There is no module {printable(module)}.", path="tools"
            ) from None
        what = printable(f"{type(error).__name__}: {error}")
        raise ValidationFailed(
            f"The module {printable(module)} cannot be imported: {what}", path="tools"
        ) from error
    found = getattr(found, name, None)
    if not isinstance(found, ToolRegistry):
        raise ValidationFailed(f"There is no ToolRegistry at {shown}.", path="tools")
    return found


def _leads_to(missing: str | None, module: str) -> bool:
    return missing is not None and f"{module}.".startswith(f"{missing}.")
