"""Records and rules of tasks, without I/O, and the small helpers that every package uses."""
