import pytest
from sqlalchemy import Engine

from tests.rig.stage import Stage


@pytest.fixture
def stage(engine: Engine) -> Stage:
    return Stage(engine)
