"""What is known of runs, gathered for people and programs: one place for the command line and the HTTP server."""
