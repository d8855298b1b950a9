"""The option `--assistant`, the setup that it names, and the guarantees at the end."""

import importlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from _pytest.terminal import TerminalReporter

from engine_assistant.testing.conformance import Factory, Names, Setup, prepared
from engine_assistant.testing.conformance.suite import Scenario

__all__: list[str] = []

PROPERTY: Final = "engine_assistant_guarantees"
VERDICTS: Final = ("passed", "skipped", "failed")
"""Of several scenarios that show one guarantee, the last of these words counts."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say what the suite runs against."""
    parser.getgroup("engine_assistant").addoption(
        "--assistant",
        metavar="MODULE:FACTORY",
        help="a function that takes Names and returns the Setup to be tried",
    )


_factory: Final = pytest.StashKey[Factory]()


def pytest_configure(config: pytest.Config) -> None:
    """Find the factory, and keep the verdicts of this run."""
    named = config.getoption("assistant")
    if named is not None:
        config.stash[_factory] = _found(named)
    config.pluginmanager.register(Verdicts(), "engine_assistant_verdicts")


def _found(named: str) -> Factory:
    module, _, name = named.partition(":")
    # As `python -m` does, which the `pytest` script does not.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"--assistant {named}: {error}") from error
    return found


@pytest.fixture(scope="session")
def conformance_names() -> Names:
    """The ids of this run."""
    return Names()


@pytest.fixture(scope="session")
def conformance_setup(pytestconfig: pytest.Config, conformance_names: Names) -> Iterator[Setup]:
    """What the factory makes; cleaned up at the end, whatever came before."""
    factory = pytestconfig.stash.get(_factory, None)
    assert factory is not None, "--assistant MODULE:FACTORY says what to run against"
    with prepared(factory, conformance_names) as setup:
        yield setup


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Write on each scenario's test what it shows, wherever the test stands."""
    for item in items:
        # Only a test that is parametrised has one.
        callspec = getattr(item, "callspec", None)
        scenario = None if callspec is None else callspec.params.get("scenario")
        if isinstance(scenario, Scenario):
            item.user_properties.append((PROPERTY, list(scenario.guarantees)))


class Verdicts:
    """What became of each guarantee."""

    def __init__(self) -> None:
        self._outcomes: defaultdict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hear of a test, also of one that another process ran."""
        # A setup that fails shows nothing; how the cleanup went says nothing of a scenario.
        if report.when == "call" or (report.when == "setup" and not report.passed):
            for name, numbers in report.user_properties:
                if name == PROPERTY and isinstance(numbers, list):
                    for number in numbers:
                        self._outcomes[number].append(report.outcome)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print the guarantees by number."""
        if not self._outcomes:
            return
        terminalreporter.section("guarantees")
        verdicts = {
            number: max(outcomes, key=VERDICTS.index)
            for number, outcomes in sorted(self._outcomes.items())
        }
        for number, verdict in verdicts.items():
            word = verdict.upper() if verdict == "failed" else verdict
            terminalreporter.write_line(f"{word:8} {number}", red=verdict == "failed")
        counts = [f"{list(verdicts.values()).count(word)} {word}" for word in VERDICTS]
        terminalreporter.write_line(f"{len(verdicts)} guarantees: {', '.join(counts)}")
