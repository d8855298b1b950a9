"""The rig, as plugins: databases, the coverage of the machines. See tests/rig/."""

from hypothesis import settings

pytest_plugins = [
    "tests.rig.moves",
    "tests.rig.databases",
    "engine_assistant.testing.plugin",
]

# Databases have no deadline per example; what a failed example was is printed to be run again.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")
