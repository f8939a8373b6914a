"""How big a text is in tokens, learnt from the engine's own counts.

A prompt is seen as three things: characters that we wrote, output of the model that is sent back, and
messages, each wrapped by the chat template. Every reply gives one equation between them and the engine's
count; a recursive least-squares estimate (a Kalman filter of a constant) solves for the three weights.
All agents of a driver share one, so it settles within a few requests.
"""

from __future__ import annotations

import msgspec

# Starting point and how far off it may be (standard deviation): tokens per character of code, tokens per
# output token sent back (not exactly 1: text is tokenised anew), tokens per message.
_PRIOR = ((0.29, 0.25), (1.0, 0.3), (6.0, 6.0))
_BOUNDS = ((0.02, 4.0), (0.2, 6.0), (0.0, 200.0))
_NOISE_FRACTION = 0.015
_NOISE_TOKENS = 2.0


class Parts(msgspec.Struct):
    """What a piece of a prompt is made of."""

    chars: int = 0
    output_tokens: int = 0
    messages: int = 0

    def plus(self, chars: int = 0, output_tokens: int = 0, messages: int = 0) -> Parts:
        """These parts and some more."""
        return Parts(self.chars + chars, self.output_tokens + output_tokens, self.messages + messages)


class TokenRatio:
    """The three weights and how sure they are."""

    def __init__(self) -> None:
        self._weights = [mean for mean, _ in _PRIOR]
        self._spread = [[0.0] * 3 for _ in range(3)]
        for index, (_, deviation) in enumerate(_PRIOR):
            self._spread[index][index] = deviation**2
        self.observations = 0

    @property
    def tokens_per_char(self) -> float:
        """Of text that we wrote."""
        return self._weights[0]

    def tokens(self, parts: Parts) -> float:
        """Expected size in tokens."""
        return sum(weight * value for weight, value in zip(self._weights, _vector(parts), strict=True))

    def chars(self, tokens: float) -> int:
        """How much text to write for this many tokens; at least one character."""
        return max(1, round(tokens / self._weights[0]))

    def learn(self, parts: Parts, tokens: int) -> None:
        """The engine counted `tokens` for these parts. A count that cannot be (0 for text) is ignored."""
        if tokens <= 0 or parts.chars + parts.output_tokens <= 0:
            return
        x = _vector(parts)
        carried = [sum(row[k] * x[k] for k in range(3)) for row in self._spread]
        noise = (_NOISE_TOKENS + _NOISE_FRACTION * tokens) ** 2
        scale = sum(x[k] * carried[k] for k in range(3)) + noise
        error = tokens - self.tokens(parts)
        for index in range(3):
            low, high = _BOUNDS[index]
            moved = self._weights[index] + carried[index] / scale * error
            self._weights[index] = min(max(moved, low), high)
        for i in range(3):
            for k in range(3):
                self._spread[i][k] -= carried[i] * carried[k] / scale
        self.observations += 1


def _vector(parts: Parts) -> tuple[float, float, float]:
    return float(parts.chars), float(parts.output_tokens), float(parts.messages)
