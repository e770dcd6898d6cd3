"""Real processes, killed and restarted."""
