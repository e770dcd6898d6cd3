"""The kernel: what a batch of operations does, whatever the store, the cache and the interleaving."""
