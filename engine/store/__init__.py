"""What survives the session, in SQLite."""
