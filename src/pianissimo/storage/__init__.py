"""Connections to the databases that keep what must not be lost: SQLite in a file, PostgreSQL by URL."""
