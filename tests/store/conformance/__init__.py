"""One suite that memory, SQLite and PostgreSQL all pass."""
