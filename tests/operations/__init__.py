"""What each operation promises, refuses and costs."""
