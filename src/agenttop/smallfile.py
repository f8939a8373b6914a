"""Small files that a user has written: read whole, or refused with one sentence."""

from __future__ import annotations

from pathlib import Path

from agenttop.errors import UsageError
from agenttop.model.text import clean

MOST_BYTES = 1024 * 1024


def read_text(file: Path, wanted: str, most: int = MOST_BYTES) -> str:
    """The text of a file, line ends as `\\n`, without a byte-order mark.

    `wanted` is what the file should be, e.g. "a profile". Raises UsageError when it cannot be read, is no
    regular file (a device may never end), is larger than `most` bytes, or is not UTF-8.
    """
    try:
        if file.exists() and not file.is_file() and not file.is_dir():
            raise UsageError(f"{file}: not a regular file, so not {wanted}")
        with file.open("rb") as stream:
            content = stream.read(most + 1)
        if len(content) > most:
            raise UsageError(f"{file}: larger than {most} bytes, so not {wanted}")
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8 text, so not {wanted}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{file}: cannot be read: {clean(str(reason))}") from None
