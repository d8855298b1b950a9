"""Archives: a thread as a file, byte for byte the same from either database, and back into any.

What is exported was read back before its last line was given, and what is imported was examined by
the doctor before it is kept.
"""
