"""Input that means harm: bytes that are no values, rows that nobody of us wrote, words that are SQL, code that dies."""
