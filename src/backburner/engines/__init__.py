"""The engines: who starts the work."""
