"""The doctor: it reads the record and says what in it cannot be true.

It stands apart from the rules that wrote the record, and never asks them. What each row must hold
is derived from the events alone, by the machines and the digests that `model` pins.
"""

from engine_assistant.doctor.examination import examine
from engine_assistant.doctor.findings import Code, Finding, Progress, Report
from engine_assistant.doctor.reading import reading_engine

__all__ = ["Code", "Finding", "Progress", "Report", "examine", "reading_engine"]
