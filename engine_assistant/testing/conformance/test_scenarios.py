"""Every scenario as a test, for `--assistant`."""

import pytest

from engine_assistant.testing.conformance import Names, Setup
from engine_assistant.testing.conformance.suite import SCENARIOS, Scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_it_conforms(
    scenario: Scenario, conformance_setup: Setup, conformance_names: Names
) -> None:
    """The setup does what the scenario expects."""
    scenario.play(conformance_setup, conformance_names)
