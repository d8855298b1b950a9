"""What README.md shows is run, and what it says in tables is compared with the code."""

import re

import pytest

from engine_assistant import (
    OPERATIONS,
    AssistantError,
    Conflict,
    ConflictReason,
    Internal,
    NotFound,
    PermissionDenied,
    Raced,
    Unavailable,
    ValidationFailed,
    migrate,
)
from tests.rig.pages import ROOT, URL, run_snippets, snippets

PAGE = ROOT / "README.md"
README = PAGE.read_text(encoding="utf-8")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def test_the_snippets_run_in_their_order(empty_database_url: str) -> None:
    assert sum(URL in text for _, text in snippets(PAGE)) == 2, "one sync and one async use"
    run_snippets(PAGE, empty_database_url)


def _row(name: str) -> list[str]:
    (line,) = (line for line in README.splitlines() if line.startswith(f"| `{name}` |"))
    return [cell.strip(" `") for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    "kind",
    [NotFound, PermissionDenied, ValidationFailed, Conflict, Raced, Unavailable, Internal],
)
def test_the_table_of_errors_is_that_of_the_code(kind: type[AssistantError]) -> None:
    _, code, retry, _ = _row(kind.__name__)
    assert code == kind.code
    assert kind is Conflict or retry == kind.retry.value


def test_the_table_of_reasons_names_each_with_its_retry() -> None:
    _, table = README.split("| `Conflict.reason` | `retry` |\n|---|---|\n")
    said = {}
    for line in table.splitlines()[:2]:
        words, retry = line.strip("|").split("|")
        said |= {reason.strip("`"): retry.strip() for reason in words.split()}
    assert said == {reason.value: Conflict(reason, "").retry.value for reason in ConflictReason}


def test_the_links_lead_somewhere() -> None:
    pages = [PAGE, *(ROOT / "docs").rglob("*.md")]
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert dead == []


def test_what_the_page_calls_by_name_is_there() -> None:
    assert f"`{migrate.VERSION_TABLE}`" in README
    called = set(re.findall(r'"(assistant/[a-z-]+)"', README))
    assert called
    assert called <= set(OPERATIONS)
