"""Tests that read the code: its layers, its purity, its size."""
