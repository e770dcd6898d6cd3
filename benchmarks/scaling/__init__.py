"""How the figures change with the size of things: `python -m benchmarks.scaling`, on demand."""
