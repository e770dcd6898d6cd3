"""Compiled flows: compiler, graph, plan."""
