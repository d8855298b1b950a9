"""What docs/telemetry.md shows is run, and the names that it tells are those of the code."""

import re

from tests.rig.pages import ROOT, run_snippets

PAGE = ROOT / "docs" / "telemetry.md"
CODE = ROOT / "engine_assistant" / "telemetry"


def test_the_snippet_runs(empty_database_url: str) -> None:
    run_snippets(PAGE, empty_database_url)


def test_the_names_are_those_of_the_code() -> None:
    def names(text: str, quote: str) -> set[str]:
        found = re.findall(rf"{quote}(gen_ai\.[a-z_.]+){quote}", text)
        return {name for name in found if not name.startswith("gen_ai.usage.")}

    code = "".join(path.read_text(encoding="utf-8") for path in CODE.glob("*.py"))
    page = PAGE.read_text(encoding="utf-8")
    assert names(code, '"') - {"gen_ai.operation.name"} == names(page, "`")
