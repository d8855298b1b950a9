"""One suite that any configuration of the engine must pass, through its public names alone.

    python -m engine_assistant.testing.conformance my_module:factory

`factory` takes `Names` and returns a `Setup`, of either face; it may be `async`. At the end the
guarantees that were shown are printed by number. In a suite of your own:

    from engine_assistant.testing.conformance.suite import SCENARIOS, Scenario

    @pytest.fixture(scope="module")
    def setup() -> Iterator[Setup]:
        with prepared(factory) as made:
            yield made

    @pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
    def test_it_keeps_its_promises(scenario: Scenario, setup: Setup) -> None:
        scenario.play(setup)
"""

from engine_assistant.testing.conformance.setup import Factory, Names, Setup, Who, prepared

__all__ = ["Factory", "Names", "Setup", "Who", "prepared"]
