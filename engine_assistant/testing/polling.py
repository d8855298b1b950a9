"""Waiting for what somebody else does, without a guess at how long that takes."""

from collections.abc import Callable
from threading import Event
from time import monotonic

__all__ = ["poll_until"]


def poll_until(
    true: Callable[[], bool], message: Callable[[], str], seconds: float, pause: float = 0.005
) -> None:
    """Ask `true` again and again, with `pause` seconds between, until it answers True.

    Raises:
        TimeoutError: `message()`, when it has not after `seconds`.
    """
    never = Event()
    end = monotonic() + seconds
    while not true():
        if monotonic() > end:
            raise TimeoutError(message())
        never.wait(pause)
