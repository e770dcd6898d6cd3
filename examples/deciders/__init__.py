"""Deciders, one a file: an order, a subscription, accounts with a table beside them, a webhook."""
