"""The relay: milestones handed to the rest of the platform."""
