"""Crash points: every place at which a process can die, tried one after another, and what is left judged each time."""
