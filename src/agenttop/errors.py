"""The two errors a command may end with; everything foreign is renamed to one of them at its border."""


class AgenttopError(Exception):
    """The run or the check failed. Exit code 1.

    `message` is one sentence: what, where. `hint` is what to do about it.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(AgenttopError):
    """The command line, a profile or a setting is wrong. Exit code 2."""

    exit_code = 2
