import pytest
from sqlalchemy import Engine

from tests.rig.remembered import play_on
from tests.rig.stage import Play, Stage


@pytest.fixture
def stage(engine: Engine) -> Stage:
    return Stage(engine)


@pytest.fixture
def play(stage: Stage) -> Play:
    return play_on(stage)
