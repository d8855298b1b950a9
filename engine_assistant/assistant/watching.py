"""How an observer is told of one operation. Nothing here runs when there is none."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from engine_assistant.model.errors import AssistantError, Conflict
from engine_assistant.model.fields import Id, Natural
from engine_assistant.model.observing import OK, Observer, OperationBegun, OperationEnded
from engine_assistant.model.views import Lease, Thread

__all__ = ["Watch", "watched"]

V = TypeVar("V")

_ID: Final[TypeAdapter[str]] = TypeAdapter(Id)
_NUMBER: Final[TypeAdapter[int]] = TypeAdapter(Natural)


class Watch:
    """One operation that somebody looks on."""

    def __init__(self) -> None:
        """Nothing has been answered yet."""
        self._view: object = None

    def answered(self, view: V) -> V:
        """Note the answer, and hand it on."""
        self._view = view
        return view

    def ended(self, error: BaseException | None, seconds: float) -> OperationEnded:
        """Say what became of the operation, without a word of what was in it."""
        view = self._view
        return OperationEnded(
            outcome=_code(error),
            seconds=seconds,
            reason=error.reason.value if isinstance(error, Conflict) else None,
            thread_id=_fitting(_ID, _of(view, "id" if isinstance(view, Thread) else "thread_id")),
            turn=_fitting(_NUMBER, _of(view, "turn")),
            fence=_fitting(_NUMBER, _of(view, "fence")),
            took_over=isinstance(view, Lease) and view.took_over,
        )


@contextmanager
def watched(
    observer: Observer, operation: str, tenant: str, values: Mapping[str, object]
) -> Iterator[Watch]:
    """Tell the observer how an operation begins and ends."""
    begun = OperationBegun(
        operation=operation,
        tenant=tenant,
        thread_id=_fitting(_ID, values.get("thread_id")),
        fence=_fitting(_NUMBER, values.get("fence")),
    )
    tell = None
    # What somebody makes of an operation must not decide whether it counts.
    with suppress(Exception):
        tell = observer(begun)
    watch, failure = Watch(), None
    began = time.perf_counter()
    try:
        yield watch
    except BaseException as error:
        failure = error
        raise
    finally:
        if tell is not None:
            with suppress(Exception):
                tell(watch.ended(failure, time.perf_counter() - began))


def _code(error: BaseException | None) -> str:
    if error is None:
        return OK
    return error.code if isinstance(error, AssistantError) else AssistantError.code


def _of(view: object, name: str) -> object:
    return getattr(view, name, None)


def _fitting(kind: TypeAdapter[V], value: object) -> V | None:
    """Return what can be an id or a number. The input has not been checked yet."""
    try:
        return kind.validate_python(value)
    except ValidationError:
        return None
