"""Floor 1: SQL. Tables, locks, reads and conditional writes; no rule is decided here."""
