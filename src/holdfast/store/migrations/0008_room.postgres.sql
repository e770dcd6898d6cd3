-- A run's row is written anew with every step. Where its page has room for the next version, no index is told of it.
ALTER TABLE runs SET (fillfactor = 60);
