"""Many hosts that die at any moment, over a database that dies too.

`python -m tests.torture` runs it for as long as it is told; `test_short.py` is its short form.
"""
