"""What every store promises, and the migrations that make its tables."""
