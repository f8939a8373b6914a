"""How big a text is in tokens, learnt from the engine's own counts.

A prompt is seen as seven things: characters that we wrote, output of the model that is sent back, reasoning
that is, messages, each wrapped by the chat template, tool schemas, tool calls with what the template puts
around their results, and what it adds to each prompt once. Every reply gives one equation between them and
the engine's count; a recursive least-squares estimate (a Kalman filter of a constant) solves for the
weights. All agents of a driver share one, so it settles within a few requests.
"""

from __future__ import annotations

import msgspec

# Starting point and how far off it may be (standard deviation): tokens per character of code, per output
# token sent back (not exactly 1: text is tokenised anew), per message, per character of tool schemas, per
# tool call and its result, per reasoning token sent back (templates may leave it out), and once per prompt.
_PRIOR = ((0.29, 0.25), (1.0, 0.3), (6.0, 6.0), (0.27, 0.25), (30.0, 30.0), (0.8, 0.5), (4.0, 40.0))
_BOUNDS = ((0.02, 4.0), (0.2, 6.0), (0.0, 200.0), (0.0, 4.0), (0.0, 500.0), (0.0, 6.0), (-50.0, 5000.0))
_SIZE = len(_PRIOR)
_NOISE_FRACTION = 0.015
_NOISE_TOKENS = 2.0

DROPPED_SHARE = 0.2
"""Tool schemas that weigh less than this share of other text are not in the prompt: a template without tools
leaves them out without a word (llama.cpp issue 27129)."""


class Parts(msgspec.Struct):
    """What a piece of a prompt is made of."""

    chars: int = 0
    output_tokens: int = 0
    messages: int = 0
    tool_chars: int = 0
    calls: int = 0
    reasoning_tokens: int = 0
    openings: int = 0
    """1 for the beginning of a prompt."""

    def plus(self, chars: int = 0, output_tokens: int = 0, messages: int = 0) -> Parts:
        """These parts and some more."""
        return self.add(Parts(chars, output_tokens, messages))

    def add(self, other: Parts) -> Parts:
        """Both together."""
        return Parts(
            self.chars + other.chars,
            self.output_tokens + other.output_tokens,
            self.messages + other.messages,
            self.tool_chars + other.tool_chars,
            self.calls + other.calls,
            self.reasoning_tokens + other.reasoning_tokens,
            self.openings + other.openings,
        )


class TokenRatio:
    """The weights and how sure they are."""

    def __init__(self) -> None:
        self._weights = [mean for mean, _ in _PRIOR]
        self._spread = [[0.0] * _SIZE for _ in range(_SIZE)]
        for index, (_, deviation) in enumerate(_PRIOR):
            self._spread[index][index] = deviation**2
        self.observations = 0
        self._with_tools = 0

    @property
    def tokens_per_char(self) -> float:
        """Of text that we wrote."""
        return self._weights[0]

    @property
    def tools_are_dropped(self) -> bool:
        """Tool schemas were sent, and the engine's counts show that they are not in the prompt."""
        sure = self._with_tools > 0 and self.observations >= 3
        return sure and self._weights[3] < DROPPED_SHARE * self._weights[0]

    def tokens(self, parts: Parts) -> float:
        """Expected size in tokens."""
        return sum(weight * value for weight, value in zip(self._weights, _vector(parts), strict=True))

    def chars(self, tokens: float) -> int:
        """How much text to write for this many tokens; at least one character."""
        return max(1, round(tokens / self._weights[0]))

    def tool_chars(self, tokens: float) -> int:
        """How long tool schemas of this many tokens are, as JSON."""
        return max(1, round(tokens / max(self._weights[3], self._weights[0] / 2)))

    def learn(self, parts: Parts, tokens: int) -> None:
        """The engine counted `tokens` for these parts. A count that cannot be (0 for text) is ignored."""
        if tokens <= 0 or parts.chars + parts.output_tokens <= 0:
            return
        x = _vector(parts)
        carried = [sum(row[k] * x[k] for k in range(_SIZE)) for row in self._spread]
        noise = (_NOISE_TOKENS + _NOISE_FRACTION * tokens) ** 2
        scale = sum(x[k] * carried[k] for k in range(_SIZE)) + noise
        error = tokens - self.tokens(parts)
        for index in range(_SIZE):
            low, high = _BOUNDS[index]
            moved = self._weights[index] + carried[index] / scale * error
            self._weights[index] = min(max(moved, low), high)
        for i in range(_SIZE):
            for k in range(_SIZE):
                self._spread[i][k] -= carried[i] * carried[k] / scale
        self.observations += 1
        self._with_tools += parts.tool_chars > 0
        if not self._with_tools:  # until they have been seen, the best guess is that they weigh like text
            self._weights[3] = self._weights[0]


def _vector(parts: Parts) -> tuple[float, ...]:
    return (
        float(parts.chars),
        float(parts.output_tokens),
        float(parts.messages),
        float(parts.tool_chars),
        float(parts.calls),
        float(parts.reasoning_tokens),
        float(parts.openings),
    )
