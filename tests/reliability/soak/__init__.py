"""Real processes on a real PostgreSQL, behind a proxy that misbehaves, and the books that must balance afterwards."""
