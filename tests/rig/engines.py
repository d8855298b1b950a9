"""Engines that outlive their test, where a database is emptied and given again under its URL.

What SQLAlchemy has compiled belongs to the engine it was compiled for: a new engine for each test
would spend a fifth of the whole time on compiling the same statements again.
"""

from __future__ import annotations

import sqlalchemy as sa

from engine_assistant import make_engine

_KEPT: dict[str, sa.Engine] = {}


def kept_engine(url: str | sa.URL) -> sa.Engine:
    """Answer the engine of a URL as the package makes it; who has it disposes it after the test.

    It is a twin of the one that is kept, so what a test listens for ends with the test.
    """
    name = sa.make_url(url).render_as_string(hide_password=False)
    kept = _KEPT.get(name)
    if kept is None:
        kept = _KEPT[name] = make_engine(url)
    return kept.execution_options()
