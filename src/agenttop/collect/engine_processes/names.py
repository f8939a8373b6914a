"""What a process is called: its program or its title, never an argument, which may be a key. Pure."""

from __future__ import annotations

import re

from agenttop.model.text import clean

LONGEST = 40
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*w?|node|bun|perl|ruby|bash|dash|sh", re.IGNORECASE)
_PLAIN = re.compile(r"[\w.+-]{1,60}")
"""What may be the name of a module or a script."""
_TAKE_A_VALUE = ("-X", "-W", "--check-hash-based-pycs")
UNNAMED = "unnamed"


def name_of(command_line: bytes, short: str = "") -> str:
    """A name from the command line as the kernel keeps it and from the short name (15 characters).

    A program that has set itself a title has put it in place of the command line: `VLLM::Worker_TP0`. Some
    write a whole command line there; only the first word of such a title is taken. Of an interpreter the
    script or module is named that it runs.
    """
    words = [word for word in command_line[:4096].decode("utf-8", "replace").split("\0") if word]
    if not words:
        return clean(short, LONGEST) or UNNAMED
    first = words[0]
    if len(words) == 1 and " " in first:
        return _of_title(first, short)
    program = _last(first)
    if _INTERPRETER.fullmatch(program):
        program = _run_by(words[1:]) or program
    return clean(program, LONGEST) or clean(short, LONGEST) or UNNAMED


def _of_title(title: str, short: str) -> str:
    if title.startswith("/") and short:  # a path with blanks in it, or a command line in one piece
        return clean(short, LONGEST)
    return clean(_last(title.split()[0].rstrip(":")), LONGEST) or clean(short, LONGEST) or UNNAMED


def _run_by(words: list[str]) -> str | None:
    """What an interpreter is to run, where that is plainly a name."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        if words[index] == "-m":
            module = words[index + 1] if index + 1 < len(words) else ""
            return module if _PLAIN.fullmatch(module) else None
        if words[index].startswith("-c") or words[index] in ("-e", "-"):
            return None
        index += 2 if words[index] in _TAKE_A_VALUE else 1
    script = _last(words[index]) if index < len(words) else ""
    return script if _PLAIN.fullmatch(script) else None


def _last(word: str) -> str:
    return re.split(r"[/\\]", word.rstrip("/\\"))[-1]
