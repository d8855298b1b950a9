import pytest
from sqlalchemy import Engine

from tests.rig.stage import Play, Stage


@pytest.fixture
def stage(engine: Engine) -> Stage:
    return Stage(engine)


@pytest.fixture
def play(stage: Stage) -> Play:
    return stage.set()
