"""A play that is set once for each kind of database; for every later test its rows are written.

To set it takes some forty operations, which other tests look at. A test that only needs a record in
mid-play gets the same rows in one transaction.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from engine_assistant.store import tables
from tests.rig.stage import Play, Rows, Stage, dump

_SET: dict[str, tuple[Play, datetime, Rows]] = {}


def play_on(stage: Stage) -> Play:
    """Answer the play of `Stage.set` on an empty database, whose clock is where it was then."""
    kind = stage.engine.dialect.name
    if kind not in _SET:
        play = stage.set()
        _SET[kind] = play, stage.clock.now, dump(stage.engine)
        return play
    play, now, rows = _SET[kind]
    with stage.engine.begin() as connection:
        for table in tables.METADATA.sorted_tables:
            if rows[table.name]:
                names = table.columns.keys()
                values = [dict(zip(names, row, strict=True)) for row in rows[table.name]]
                connection.execute(sa.insert(table), values)
    stage.clock.set(now)
    return replace(play, stage=stage)
