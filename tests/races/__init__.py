"""The races, forced between two real connections. One test for each of R01 to R32, and R59."""
