"""The one exception that stands for a mistake of the user: printed as a sentence, exit code 2."""


class UserError(Exception):
    """Says in one sentence what was wrong, where, and what would be right."""
