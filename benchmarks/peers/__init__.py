"""Other engines, measured in the same round, each in a virtual environment of its own."""
