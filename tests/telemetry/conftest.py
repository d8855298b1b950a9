"""Where the SDK is missing, nothing here is collected."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.telemetry.sdk import Sdk

try:
    _MISSING = find_spec("opentelemetry.sdk") is None
except ModuleNotFoundError:
    _MISSING = True

collect_ignore_glob = ["test_*.py"] if _MISSING else []


def pytest_report_header() -> str | None:
    """Say what is not collected."""
    return "not collected, for want of an extra: tests/telemetry" if _MISSING else None


@pytest.fixture
def sdk() -> "Iterator[Sdk]":
    from tests.telemetry.sdk import Sdk

    sdk = Sdk()
    yield sdk
    sdk.meters.shutdown()
