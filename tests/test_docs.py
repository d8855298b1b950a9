"""The generated pages say what the code says."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def pages() -> dict[str, str]:
    """Run the generator as it stands in docs/."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.generated())


@pytest.mark.guarantee("G-FACTS-04")
def test_the_generated_pages_are_those_of_the_code() -> None:
    for name, page in pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == page, "run: python docs/generate.py"
