"""State graphs: an agent, a map-reduce, a pipeline."""
