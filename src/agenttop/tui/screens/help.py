"""All keys, and what the glyphs and words mean."""

from __future__ import annotations

from textual import events

from agenttop.tui.actions import ACTIONS
from agenttop.tui.screens.dialog import Dialog
from agenttop.view.glyphs import state
from agenttop.view.spans import Line, beside, cells, fit, pad, width, wrap

GROUPS = ("Agents", "Time", "Look", "Session")
LEFT = ("Agents", "Look")
"""In the left one of two columns."""

KEY = 9
"""Cells of the column with the keys."""

WORDS = (
    ("#", "the slot that serves the agent, or still holds its conversation"),
    (
        "TTFT",
        "seconds from sending a request to its first token, last 5 minutes; compactions left out",
    ),
    ("TPOT", "seconds per output token after the first, median over those turns"),
    ("p50/agent", "median decode rate of the agents that decode at this moment"),
    (
        "avg/seq",
        "decode divided by the sequences that ran: an average, where an engine does not tell requests apart",
    ),
    ("engine", "beside TTFT: by the engine's own histograms, over all its requests; agents: by their turns"),
    ("cached", "share of prompt tokens that the engine took from its cache"),
    ("KV", "pool of the key-value cache: █ held by requests in progress, ▒ left by finished ones, · free"),
    ("hits", "share of prompt tokens that the engine found in its prefix cache, last 60 seconds"),
    ("accept", "share of the tokens drafted by speculative decoding that was taken, and tokens a step"),
    ("preempt", "requests that the engine has pushed out of its KV pool and computes again later"),
    ("└", "a sub-agent of the agent above it"),
    ("SIMULATED", "nothing of this engine was measured; 20x: session time runs 20 times as fast as life"),
    ("cmp", "compactions: how often the agent has shortened its context"),
    ("◆ + x ⇣ ! ×", "on the time axis: a mark, agents come, agents stop, a compaction, trouble"),
    (
        "held",
        "what holds the GPU's clocks down; the strip: the last 5 minutes, higher for longer, and where a "
        "reason begins: P power limit, T heat, B power brake, H hardware slowdown, C current, ? another",
    ),
    ("of gen5 x16", "share of what the PCIe link carries now, in its busier direction"),
    (
        "LIMIT",
        "of the container: cores and memory used, of those allowed; stopped: how often the CPU limit did",
    ),
    (
        "█ ▓ ▒ ░",
        "memory of the host: of programs, else in use, mapped files (a mapped model), other page cache",
    ),
    ("own", "what all processes of agenttop cost: share of one core, memory"),
    ("–", "not known; w says why"),
)

STATES = (
    *("waiting", "prime", "queued", "prefill", "decode", "stalled", "tool", "human", "children", "compact"),
    *("backoff", "idle"),
)


class HelpScreen(Dialog[None]):
    """Closed by any of the keys that one tries."""

    title_text = "Help"

    def __init__(self) -> None:
        super().__init__()
        self._top = 0

    def content(self, room: int, rows: int) -> list[Line]:
        """The keys in two columns where there is room, then the words; scrolls where it is too long."""
        lines = _lines(room)
        self._top = max(0, min(self._top, len(lines) - rows))
        return lines[self._top : self._top + rows]

    def note(self) -> Line:
        """How to get away, and on."""
        return [("↑↓", "key"), (" more  ", "label"), ("Esc", "key"), (" closes", "label")]

    def on_key(self, event: events.Key) -> None:
        """Scroll, or close."""
        moves = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "home": -999, "end": 999}
        if event.key in moves:
            self._top += moves[event.key]
            self.draw()
        elif event.key in ("escape", "q", "question_mark", "f1", "enter"):
            self.dismiss(None)
        event.stop()


def _lines(room: int) -> list[Line]:
    if room >= 100:
        half = room * 52 // 100
        blocks = [_group(name, half - 2 if name in LEFT else room - half) for name in GROUPS]
        left, right = [*blocks[0], [], *blocks[2]], [*blocks[1], [], *blocks[3]]
        lines = beside(
            [fit(line, half) for line in left], half, [fit(line, room - half) for line in right], room - half
        )
    else:
        lines = [line for name in GROUPS for line in (*_group(name, room), [])]
    lines += [[], [("States", "accent")], *_states(room)]
    lines += [[], [("Words", "accent")]]
    for word, meaning in WORDS:
        wrapped = wrap(meaning, room - 12, "label")
        lines.append([(pad(word, 12), "text"), *wrapped[0]])
        lines += [[(" " * 12, "text"), *line] for line in wrapped[1:]]
    return lines


def _group(name: str, room: int) -> list[Line]:
    """The keys of a group; what does not fit beside its key goes on in the next line."""
    lines: list[Line] = [[(name, "accent")]]
    for action in ACTIONS:
        if action.group == name:
            wrapped = wrap(action.help, room - KEY, "text")
            lines.append([(pad(action.shown, KEY), "key"), *wrapped[0]])
            lines += [[(" " * KEY, "text"), *line] for line in wrapped[1:]]
    return lines


def _states(room: int) -> list[Line]:
    """All of them, on as many lines as they take."""
    lines: list[Line] = [[]]
    for name in STATES:
        shown = state(name)
        if lines[-1] and width(lines[-1]) + cells(shown[0]) + 2 > room:
            lines.append([])
        lines[-1] += [shown, ("  ", "text")]
    return lines
