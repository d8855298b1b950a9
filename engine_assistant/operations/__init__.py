"""Floor 2: where a rule meets the store. One function per operation, in three beats."""
