"""`python -m engine_assistant.testing.conformance MODULE:FACTORY [PYTEST ARGUMENT…]`."""

import sys

try:
    import pytest
except ModuleNotFoundError:
    sys.exit("error: this needs an extra: pip install 'engine-assistant[testing]'")

PACKAGE = "engine_assistant.testing.conformance"
USAGE = f"usage: python -m {PACKAGE} MODULE:FACTORY [PYTEST ARGUMENT…]"


def main(arguments: list[str]) -> int:
    """Run the suite against what a factory makes; answer pytest's exit code."""
    if not arguments or arguments[0].startswith("-"):
        sys.stderr.write(f"{USAGE}\n")
        return pytest.ExitCode.USAGE_ERROR
    factory, *rest = arguments
    fixed = ["-p", f"{PACKAGE}.plugin", "--pyargs", f"{PACKAGE}.test_scenarios"]
    return pytest.main([*fixed, "-rs", "--assistant", factory, *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
