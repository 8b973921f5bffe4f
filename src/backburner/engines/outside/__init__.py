"""Engines whose workers are elsewhere: a queue outside gets the ids of tasks, and starts who runs them."""
