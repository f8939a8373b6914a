"""A `/metrics` reply by an engine's own names: which samples are wanted, under which older ones they also go,
and how the series of several data-parallel engines behind one address come together. Pure.

One `Catalogue` per kind of engine; what it reads is asked by key, so that the adapter knows nothing of
prefixes, versions or labels it does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agenttop.collect.engine.histogram import MAX_TOTAL, Histogram, collect
from agenttop.model.text import clean
from agenttop.wire.prometheus import Labels, Reader, Samples

Series = list[tuple[Labels, float]]
MOST_COUNTS = 24
"""Reasons that are kept apart."""


class Catalogue:
    """What is read of the `/metrics` of one kind of engine."""

    def __init__(
        self,
        prefixes: Sequence[str],
        families: Mapping[str, Sequence[str]],
        plain: Sequence[str] = (),
        histograms: Mapping[str, Sequence[str]] | None = None,
        keep: Callable[[Series], Series] | None = None,
        sums: bool = True,
    ) -> None:
        """Nothing is parsed yet.

        Args:
            prefixes: what the engine's names begin with, the usual one first. Ray and OpenMetrics turn the
                `:` of `vllm:x` into `_`.
            families: key to sample names without prefix, the newest first; the first one found counts.
            plain: further names, without prefix, each its own key.
            histograms: key (`ttft`, `itl`, ...) to names of histograms without prefix and suffix.
            keep: which series of one sample count, for engines that say the same once per process.
            sums: whether the sums of histograms are true, so that a mean can be taken of them.
        """
        self._keep = keep
        self._prefixes = tuple(prefixes)
        self._families = {key: tuple(names) for key, names in families.items()}
        self._plain = tuple(plain)
        self._histograms = {key: tuple(names) for key, names in (histograms or {}).items()}
        own = [name for names in self._families.values() for name in names]
        suffixes = ("_bucket", "_sum") if sums else ("_bucket",)
        own += [name + suffix for names in self._histograms.values() for name in names for suffix in suffixes]
        self._readers = {
            prefix: Reader([*self._plain, *(prefix + name for name in own)]) for prefix in self._prefixes
        }

    def read(self, text: str) -> Exposition:
        """Whatever of it is in the text; never raises."""
        prefix = next((each for each in self._prefixes if _begins_a_line(text, each)), self._prefixes[0])
        samples = self._readers[prefix].read(text)
        if self._keep is not None:
            samples = {name: self._keep(series) for name, series in samples.items()}
        found: dict[str, list[tuple[Labels, float]]] = {}
        for key, names in self._families.items():
            series = _first(samples, [prefix + name for name in names])
            if series:
                found[key] = series
        histograms: dict[str, Histogram] = {}
        for key, names in self._histograms.items():
            for name in names:
                buckets = samples.get(f"{prefix}{name}_bucket", [])
                histogram = collect(buckets, samples.get(f"{prefix}{name}_sum", []))
                if histogram is not None:
                    histograms[key] = histogram
                    break
        plain = {name: samples[name] for name in self._plain if name in samples}
        return Exposition(found, plain, histograms)


class Exposition:
    """One reply, by the keys of its catalogue."""

    def __init__(
        self,
        found: Mapping[str, list[tuple[Labels, float]]],
        plain: Mapping[str, list[tuple[Labels, float]]],
        histograms: Mapping[str, Histogram] | None = None,
    ) -> None:
        self._found = found
        self._plain = plain
        self.histograms: Mapping[str, Histogram] = histograms or {}
        """By key of the catalogue; those that make no sense are left out."""

    @property
    def is_the_engines(self) -> bool:
        """Whether any of the engine's own samples is there: servers whose statistics are off have none."""
        return bool(self._found)

    def total(self, key: str) -> float | None:
        """The sum of all series; None when there is none, or none that counts."""
        values = [value for _, value in self._found.get(key, ()) if 0 <= value < MAX_TOTAL]
        return sum(values) if values else None

    def count(self, key: str) -> int | None:
        """The sum as a whole number."""
        value = self.total(key)
        return int(value) if value is not None else None

    def each(self, key: str, label: str = "engine") -> dict[str, float]:
        """Label value to value, in the order of the text; several series of one label value are added up.

        Values as the engine wrote them, but finite.
        """
        values: dict[str, float] = {}
        for labels, value in self._found.get(key, ()):
            if abs(value) < MAX_TOTAL:
                name = labels.get(label, "")
                values[name] = values.get(name, 0.0) + value
        return values

    def counts(self, key: str, label: str) -> dict[str, int]:
        """Label value to how many, as both may go into a frame; empty where it is not told."""
        found: dict[str, int] = {}
        for labels, value in self._found.get(key, ()):
            name = clean(labels.get(label, ""), 40)
            if name and 0 <= value < MAX_TOTAL and (name in found or len(found) < MOST_COUNTS):
                found[name] = found.get(name, 0) + int(value)
        return found

    def series(self, key: str) -> Series:
        """All series, as the engine wrote them, for what more than one label decides."""
        return list(self._found.get(key, ()))

    def labels(self, key: str) -> Labels:
        """All labels of the first series; empty when there is none."""
        series = self._found.get(key)
        return series[0][0] if series else {}

    def plain(self, name: str) -> float | None:
        """A sample without the engine's prefix."""
        values = [value for _, value in self._plain.get(name, ()) if 0 <= value < MAX_TOTAL]
        return values[0] if values else None


def _begins_a_line(text: str, prefix: str) -> bool:
    return text.startswith(prefix) or f"\n{prefix}" in text


def _first(samples: Samples, names: Sequence[str]) -> list[tuple[Labels, float]]:
    return next((series for name in names if (series := samples.get(name))), [])
