"""What we give to whoever tests against the engine: `docs/testing.md` shows all of it.

Each module stands for itself and is imported by its own name, because they need different things:
`plugin` and `conformance` pytest, `postgres` a libpq, `replay` the host's model port, `races`,
`clock`, `faults` and `recorded` nothing more. Nothing else of the package imports any of it.
"""
