"""What asks for no caller, across tenants, is checked all the same."""

import asyncio
from collections.abc import Callable

import pytest

from engine_assistant import Assistant, AsyncAssistant, ValidationFailed
from engine_assistant.testing.databases import awaited
from tests.rig.stage import ALICE, Stage

NO_IDS = ("", "x" * 129, "a\0b", "\udcff", 7, b"acme", ["acme"], object())

ASKED: dict[str, Callable[[Assistant, object], object]] = {
    "survey-tenant": lambda assistant, it: assistant.survey(tenant=it),  # type: ignore[arg-type]
    "survey-thread": lambda assistant, it: assistant.survey(thread_id=it),  # type: ignore[arg-type]
    "survey-after": lambda assistant, it: assistant.survey(after=("acme", it)),  # type: ignore[arg-type]
    "survey-pair": lambda assistant, it: assistant.survey(after=it),  # type: ignore[arg-type]
    "exclude": lambda assistant, it: assistant.list_runnable(exclude=[("acme", it)]),  # type: ignore[list-item]
    "exclude-pair": lambda assistant, it: assistant.list_runnable(exclude=[it]),  # type: ignore[list-item]
    "exclude-all": lambda assistant, it: assistant.list_runnable(exclude=it or 7),  # type: ignore[arg-type]
    "doctor-tenant": lambda assistant, it: list(assistant.doctor(tenant=it)),  # type: ignore[arg-type]
    "doctor-thread": lambda assistant, it: list(assistant.doctor(thread_id=it)),  # type: ignore[arg-type]
}


@pytest.mark.guarantee("G-INPUT-18")
@pytest.mark.guarantee("G-INPUT-02")
@pytest.mark.parametrize("how", ASKED)
def test_what_can_name_no_thread_is_refused(stage: Stage, how: str) -> None:
    for value in NO_IDS:
        with pytest.raises(ValidationFailed) as refused:
            ASKED[how](stage.assistant, value)
        assert refused.value.__context__ is None
        assert "acme" not in refused.value.message
        assert "xxx" not in refused.value.message


@pytest.mark.guarantee("G-INPUT-18")
@pytest.mark.guarantee("G-OPS-47")
def test_it_is_refused_when_it_is_awaited(stage: Stage, database_url: str) -> None:
    async def ask() -> None:
        assistant = AsyncAssistant.from_url(awaited(database_url))
        try:
            with pytest.raises(ValidationFailed):
                await assistant.survey(tenant="\udcff")
            with pytest.raises(ValidationFailed):
                [found async for found in assistant.doctor(tenant="\udcff")]
        finally:
            await assistant.engine.dispose()

    asyncio.run(ask())


@pytest.mark.guarantee("G-INPUT-18")
def test_what_is_no_list_of_threads_locks_none(stage: Stage) -> None:
    for value in (None, 7, 1.5):
        with pytest.raises(ValidationFailed), stage.assistant.session(ALICE) as ops:
            ops.lock_threads(value)  # type: ignore[arg-type]
