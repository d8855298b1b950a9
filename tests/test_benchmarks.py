"""The benchmarks run and say what they are asked. What they measure is not a test's business."""

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.measure import Row, at_least, at_most
from benchmarks.rows import GROUPS
from engine_assistant.testing.postgres import PostgresServer
from tests.rig.pages import ROOT

PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("group", GROUPS)
def test_a_quick_run_produces_rows_of_each_group(
    group: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.url.render_as_string(hide_password=False)
    file = tmp_path / "rows.json"
    assert main(["--quick", "--only", group, "--database", url, "--json", str(file)]) == 0
    rows = [Row(**row) for row in json.loads(file.read_text())]
    assert rows
    assert len({(row.name, row.against) for row in rows}) == len(rows)
    assert all(row.ours > 0 and row.other > 0 and row.ratio > 0 for row in rows)
    assert f"| `{group}` |" in PAGE


def test_without_a_file_the_rows_go_to_standard_output(
    postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres_server.url.render_as_string(hide_password=False)
    assert main(["--quick", "--only", "append-sqlite", "--database", url, "--json"]) == 0
    names = [Row(**row).name for row in json.loads(capsys.readouterr().out)]
    assert names == ["append 8, SQLite", "append 64, SQLite"]


def test_a_ratio_passes_up_to_its_bound() -> None:
    assert at_most("", "", 1.6, 1.0, 1.6).passed
    assert not at_most("", "", 1.61, 1.0, 1.6).passed
    assert at_most("", "", 9.0, 1.0, None).passed
    assert at_least("", "", 60, 100, 0.6).passed
    assert not at_least("", "", 59, 100, 0.6).passed
