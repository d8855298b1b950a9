"""How fast the record is, as ratios to the same SQL by the bare drivers in the same run.

`python -m benchmarks` prints a table; `docs/benchmarks.md` says what each row means. Timings are
never tests: a test only checks that every row is produced.
"""
