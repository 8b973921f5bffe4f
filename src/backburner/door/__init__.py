"""The door for workers that must not have the store's password: each reaches one task, through the server."""
