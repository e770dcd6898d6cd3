"""Documents and examples: what they say exists, and what they show runs."""
