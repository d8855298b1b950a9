"""What docs/archives.md shows is run, and its table of fields is that of the code."""

import re

from engine_assistant.archive.format import LONGEST_LINE, ThreadFields
from engine_assistant.archive.sections import SECTIONS
from tests.rig.pages import ROOT, run_snippets

PAGE = ROOT / "docs" / "archives.md"


def test_the_snippets_run_in_their_order(empty_database_url: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_snippets(PAGE, empty_database_url)


def test_the_form_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    _, table = text.split("| section | line | in the order of | fields |\n|---|---|---|---|\n")
    rows = [line.split("|")[1:5] for line in table.split("\n\n")[0].splitlines()]
    said = [[re.findall(r"`(\w+)`", cell) for cell in row] for row in rows]
    assert said[0] == [[], ["thread"], [], list(ThreadFields.model_fields)]
    assert said[1:] == [
        [[section.name], [section.kind], list(section.key), list(section.fields.model_fields)]
        for section in SECTIONS
    ]
    assert f"at\nmost {LONGEST_LINE // 1024**2} MiB" in text
