"""What we give to whoever tests against the engine. Nothing else of the package imports it."""
