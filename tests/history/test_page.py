"""What docs/history.md shows is run, and what it says in tables is compared with the code."""

import re

from engine_assistant.model.views.history import HistoryMessage, ResultStatus
from tests.rig.pages import ROOT, URL, run_snippets, snippets

PAGE = ROOT / "docs" / "history.md"
TEXT = PAGE.read_text(encoding="utf-8")


def _first_cells(head: str) -> list[str]:
    _, table = TEXT.split(head, 1)
    rows = table.split("\n\n")[0].splitlines()[1:]
    return [re.findall(r"`([a-z]+)`", row)[0] for row in rows]


def test_the_snippets_run_in_their_order(empty_database_url: str) -> None:
    assert sum(URL in text for _, text in snippets(PAGE)) == 1
    run_snippets(PAGE, empty_database_url)


def test_the_tables_are_those_of_the_code() -> None:
    union = HistoryMessage.__args__[0].__args__
    roles = {kind.model_fields["role"].default for kind in union}
    found = _first_cells("| role | what it is | it holds |\n")
    assert sorted(found) == sorted(roles)
    assert _first_cells("| `status` | the call |\n") == [status.value for status in ResultStatus]
