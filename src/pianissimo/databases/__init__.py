"""Connections to the databases that keep what must not be lost: SQLite in a file, PostgreSQL by URL."""

from pianissimo.databases.connection import Connection, Row
from pianissimo.databases.sqlite import SqliteConnection

__all__ = ["Connection", "Row", "SqliteConnection"]
