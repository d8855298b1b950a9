"""Random commands in random order: the engine and a small model of it must always agree.

`ENGINE_ASSISTANT_TEST_WALKS` is how many walks are made on each database; without it, a few dozen
that are the same in every run.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Engine

pytest.register_assert_rewrite("tests.rig.walks")

GIVEN = "ENGINE_ASSISTANT_TEST_WALKS"
WALKS = int(os.environ.get(GIVEN, "25"))
STEPS = 50
SETTINGS = settings(
    max_examples=WALKS,
    stateful_step_count=STEPS,
    derandomize=GIVEN not in os.environ,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if GIVEN in os.environ else [Phase.generate],
)


@pytest.mark.guarantee("G-MACH-19")
def test_whatever_is_done_the_record_is_what_the_design_says(engine: Engine) -> None:
    from tests.rig.walks import Walk

    class OnThisDatabase(Walk):
        pass

    OnThisDatabase.engine = engine
    run_state_machine_as_test(OnThisDatabase, settings=SETTINGS)
