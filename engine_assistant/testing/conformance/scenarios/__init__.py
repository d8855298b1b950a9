"""The rooms of the suite: one module for each part of what the engine promises."""
