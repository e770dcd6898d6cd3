"""The tests; a package so that `tests.support` is ours and not something installed under the same name."""
