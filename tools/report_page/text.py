"""Texts of the page: escaped names, and numbers with units."""

import html
import math
import unicodedata

FRACTIONS = ("top1", "top5", "accuracy")  # suffixes of keys of fractions, which are shown in percent
LOW = ("loss", "perplexity", "bits_per_byte")  # suffixes of keys for which lower is better, as in lower_is_better()


def printable(text):
    """Text of a file or a path without control characters, text direction marks and invalid bytes."""
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in text)


def esc(text):
    return html.escape(printable(str(text)), quote=True)


def percent(key):
    return key.endswith(FRACTIONS)


def scaled(value, units):
    """A value in the largest unit that gives at least 1, with three digits."""
    if math.isnan(value):
        return "–"
    for factor, unit in units:
        if abs(value) >= factor * 0.9995:
            break
    shown = value / factor
    digits = max(0, 2 - int(math.log10(max(abs(shown), 1))))
    if abs(shown) >= 1e5:
        return f"{shown:.3g} {unit}"
    return f"{shown:.{digits}f} {unit}" if value else f"0 {unit}"


def size(value):
    return scaled(value, [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])


def duration(value):
    if value == 0:
        return "0 s"
    if not value >= 59.95:
        return scaled(value, [(1, "s"), (1e-3, "ms"), (1e-6, "µs")])
    seconds, minutes = round(value), round(value / 60)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def figure(key, value):
    if math.isnan(value):
        return "not finite" if key else "–"
    return f"{100 * value:.2f} %" if percent(key) else f"{value:.4g}" if abs(value) < 1 else f"{value:.5g}"
