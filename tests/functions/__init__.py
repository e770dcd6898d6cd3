"""Tests of durable functions: the run's own loop first, without a store and without an engine."""
