"""SQL implementation of the store, shared by SQLite and PostgreSQL."""
