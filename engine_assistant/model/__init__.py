"""Floor 0: the vocabulary. Pure values, no database, no clock."""
