"""Writes the demo's picture: a pair of bars for each turn, time to first token with and without the cache, as SVG."""

from xml.sax.saxutils import escape

ROW, BAR, LEFT, CHART, RIGHT, TOP = 34, 12, 190, 560, 90, 64
COLOURS = {"vram": "#1b7f5c", "ram": "#2f9e77", "disk": "#3d7ea6", "none": "#8a8a8a"}
WITHOUT = "#d8c3a5"


def _text(x, y, text, size=12, anchor="start", fill="#222"):
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'


def _bar(y, seconds, longest, fill):
    width = max(1.0, CHART * seconds / longest)
    return (f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{fill}"/>'
            + _text(LEFT + width + 6, y + BAR - 2, f"{seconds:.2f} s", 10, fill="#555"))


def _legend(y):
    parts, x = [], LEFT
    for name, fill in [*COLOURS.items(), ("cache off", WITHOUT)]:
        label = "nothing reused" if name == "none" else name if name == "cache off" else f"from {name}"
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{fill}"/>' + _text(x + 14, y + 9, label, 11))
        x += 30 + 7 * len(label)
    return "".join(parts)


def svg(rows, title):
    """rows: (label, tier, seconds with cache, seconds without)."""
    longest = max(max(with_cache, without) for _, _, with_cache, without in rows)
    height = TOP + ROW * len(rows) + 16
    width = LEFT + CHART + RIGHT
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
             f'<rect width="{width}" height="{height}" fill="#fff"/>', _text(16, 24, title, 15), _legend(38)]
    for number, (label, tier, with_cache, without) in enumerate(rows):
        y = TOP + ROW * number
        parts += [_text(LEFT - 10, y + 16, label, 12, "end"), _bar(y, with_cache, longest, COLOURS[tier]),
                  _bar(y + BAR + 1, without, longest, WITHOUT)]
    return "\n".join(parts) + "\n</svg>\n"
