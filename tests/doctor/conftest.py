"""A record with a bit of everything in it, as the doctor's patient."""

import pytest
from sqlalchemy import Engine

from tests.rig.record import Record, walk


@pytest.fixture
def record(engine: Engine) -> Record:
    return walk(engine)
