"""Surfaces: the protocol views of tasks. One middleware serves them all; the rules are in TaskService."""
