"""Every guarantee has a test that pins it, and every mark names a guarantee."""

from pathlib import Path

import pytest

from tests.rig.guarantees import pinned, promised

TESTS = Path(__file__).parent
DOCUMENT = TESTS.parent / "docs" / "guarantees.md"


def test_every_guarantee_has_a_test_and_every_mark_names_one() -> None:
    numbers = promised(DOCUMENT.read_text(encoding="utf-8"))
    marks = pinned(TESTS)
    assert numbers, f"{DOCUMENT} promises nothing"
    unpinned = [number for number in numbers if number not in marks]
    unknown = {number: places for number, places in marks.items() if number not in numbers}
    assert (unpinned, unknown) == ([], {})


def test_a_number_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"G-RUN-01"):
        promised("- **G-RUN-01** a\n- **G-RUN-02** b\n- **G-RUN-01** c\n")


def test_numbers_are_read_from_the_start_of_their_lines_only() -> None:
    assert promised("- **G-RUN-01** a\n  see **G-RUN-02**\nx - **G-RUN-03**\n") == ["G-RUN-01"]


def test_marks_are_read_wherever_pytest_reads_them(tmp_path: Path) -> None:
    (tmp_path / "test_marked.py").write_text(
        "import pytest\n"
        "pytestmark = [pytest.mark.guarantee('G-A-01')]\n"
        "@pytest.mark.guarantee('G-A-02', 'G-A-03')\n"
        "async def test_one(): ...\n"
        "class TestTwo:\n"
        "    pytestmark = pytest.mark.guarantee('G-A-04')\n"
        "    @pytest.mark.guarantee('G-A-02')\n"
        "    def test_two(self): ...\n"
        "@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.guarantee('G-A-05'))])\n"
        "def test_three(n): ...\n"
    )
    assert pinned(tmp_path) == {
        "G-A-01": ["test_marked.py:2"],
        "G-A-02": ["test_marked.py:3", "test_marked.py:7"],
        "G-A-03": ["test_marked.py:3"],
        "G-A-04": ["test_marked.py:6"],
        "G-A-05": ["test_marked.py:9"],
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("@pytest.mark.guarantee('G-A-01')\ndef helper(): ...\n", "stands on no test"),
        ("@pytest.mark.guarantee(NUMBER)\ndef test_it(): ...\n", "written out"),
        ("@pytest.mark.guarantee()\ndef test_it(): ...\n", "names its numbers"),
    ],
)
def test_a_mark_that_pins_nothing_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "test_marked.py").write_text(text)
    with pytest.raises(ValueError, match=why):
        pinned(tmp_path)
