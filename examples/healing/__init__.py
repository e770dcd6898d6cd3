"""A class that is changed and deployed while a run of it is under way."""
