"""The worker's promises, on every store, in this process and in others."""
