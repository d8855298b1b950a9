"""The races, forced between two real connections: interleavings that could break a promise."""
