"""Where the extras are missing, the tests that are about them are not collected."""

from importlib.util import find_spec

_NEEDS = {
    "pydantic_ai": [
        "test_assistant_providers.py",
        "test_assistant_wires.py",
        "test_faults.py",
        "test_recorded.py",
        "test_requests.py",
    ],
    "fastmcp": ["test_mcp.py"],
}
collect_ignore = [
    name for extra, names in _NEEDS.items() if find_spec(extra) is None for name in names
]


def pytest_report_header() -> str | None:
    """Say what is not collected."""
    return f"not collected, for want of an extra: {collect_ignore}" if collect_ignore else None
