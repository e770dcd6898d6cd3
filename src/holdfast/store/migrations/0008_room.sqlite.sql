-- SQLite writes a row's new version in place of the old one: it needs no room beside it, as PostgreSQL does.
SELECT 1;
