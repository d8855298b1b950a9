"""`engine-assistant doctor`, run as an operator runs it."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.rig.command import told
from tests.rig.record import TENANT, Record


@pytest.mark.guarantee("G-DOCTOR-12")
def test_a_healthy_record_ends_with_0_and_its_totals(database_url: str, record: Record) -> None:
    ran = told(database_url, "doctor", "--json")
    (totals,) = ran.rows
    assert (ran.code, ran.err) == (0, "")
    assert totals["ok"] is True
    assert totals["threads"] == len(record.threads) + 1
    assert totals["events"] == 29
    said = told(database_url, "doctor", "--tenant", TENANT)
    assert said.code == 0
    assert said.out.startswith(f"All good: {len(record.threads)} threads, 29 events, ")


@pytest.mark.guarantee("G-DOCTOR-12")
def test_a_harmed_record_ends_with_1_and_says_what_and_where(
    database_url: str, record: Record
) -> None:
    thread_id = record.threads["waiting"]
    with record.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE assistant_approvals SET state = 'approved' WHERE call_id = 'c1'")
        )
        connection.execute(sa.text("UPDATE assistant_tool_calls SET turn = 9 WHERE call_id = 'c1'"))
    ran = told(database_url, "doctor", "--json", "--thread", thread_id)
    *findings, totals = ran.rows
    assert ran.code == 1
    assert [(found["code"], found["where"]) for found in findings] == [
        ("call-row", "call c1"),
        ("approval-state", "approval c1/usr_alice"),
    ]
    assert (totals["ok"], totals["findings"]) == (False, 2)
    said = told(database_url, "doctor", "--thread", thread_id)
    assert said.code == 1
    assert f"{TENANT}/{thread_id}  call c1  call-row  " in said.out
    assert said.out.splitlines()[-1].startswith("2 findings in 1 thread, 8 events, ")


@pytest.mark.guarantee("G-DOCTOR-12")
def test_nothing_to_examine_is_not_called_healthy(database_url: str, tmp_path: Path) -> None:
    ran = told(database_url, "doctor", "--thread", "nope")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith("There is no thread of this id.\n")
    absent = told(f"sqlite:///{tmp_path / 'absent.db'}", "doctor")
    assert (absent.code, absent.out) == (3, "")
    assert "db upgrade" in absent.err
    assert list(tmp_path.glob("absent*")) == []
