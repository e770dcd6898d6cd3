"""DAGs as people meet them: the scenarios of the seed on real stores, with real workers."""
