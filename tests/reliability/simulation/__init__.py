"""The deterministic simulation: real engines on one seeded event loop, whose time jumps and whose faults repeat."""
