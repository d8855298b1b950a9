"""Engines that outlive their test, where a database is emptied and given again under its URL.

What SQLAlchemy has compiled belongs to the engine it was compiled for: a new engine for each test
would spend a fifth of the whole time on compiling the same statements again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from engine_assistant import make_async_engine, make_engine

E = TypeVar("E")

_KEPT: dict[str, sa.Engine] = {}
_KEPT_ASYNC: dict[str, AsyncEngine] = {}


def kept_engine(url: str | sa.URL) -> sa.Engine:
    """Answer the engine of a URL as the package makes it; who has it disposes it after the test.

    It is a twin of the one that is kept, so what a test listens for ends with the test.
    """
    return _kept(url, _KEPT, make_engine).execution_options()


def kept_async_engine(url: str | sa.URL) -> AsyncEngine:
    """Answer its async twin."""
    return _kept(url, _KEPT_ASYNC, make_async_engine).execution_options()


def _kept(url: str | sa.URL, among: dict[str, E], make: Callable[[str | sa.URL], E]) -> E:
    name = sa.make_url(url).render_as_string(hide_password=False)
    if name not in among:
        among[name] = make(url)
    return among[name]
