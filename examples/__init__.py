"""Programs to read and to run; `examples/README.md` says how."""
