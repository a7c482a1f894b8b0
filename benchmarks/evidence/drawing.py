"""Small charts as SVG text; colours follow the reader's light or dark scheme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, ROW, LEFT, RIGHT, TOP, BOTTOM = 720, 26, 250, 60, 46, 40
#: Right of curves, for their names.
MARGIN = 230
_STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#222}.t{font-weight:600}.a{fill:#2563eb}.b{fill:#94a3b8}"
    ".g{stroke:#cbd5e1}.l{stroke:#dc2626;stroke-dasharray:4 3}.o{fill:none;stroke:#2563eb;stroke-width:2}"
    ".p{fill:none;stroke:#94a3b8;stroke-width:2}"
    "@media(prefers-color-scheme:dark){svg{background:#0f172a}text{fill:#e2e8f0}.g{stroke:#334155}}</style>"
)


def bars(
    title: str,
    rows: Sequence[tuple[str, float, bool]],
    *,
    top: float,
    start: float = 0.0,
    unit: str = "%",
    limits: Sequence[float] = (),
) -> str:
    """Return horizontal bars from ``start`` to ``top``: (label, value, ours); ``limits`` are drawn
    as dashed lines."""
    height = TOP + ROW * len(rows) + BOTTOM
    scale = (WIDTH - LEFT - RIGHT) / (top - start)
    parts = [f'<text class="t" x="8" y="22">{escape(title)}</text>']
    for index, (label, value, is_ours) in enumerate(rows):
        y = TOP + index * ROW
        length = (min(value, top) - start) * scale
        parts.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        parts.append(
            f'<rect class="{"a" if is_ours else "b"}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{ROW - 8}"/>'
        )
        parts.append(f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}">{value:.1f} {unit}</text>')
    for limit in limits:
        x = LEFT + (limit - start) * scale
        parts.append(
            f'<line class="l" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - BOTTOM + 4}"/>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{height - 16}" text-anchor="middle">{limit:g} {unit}</text>'
        )
    return _svg(height, title, parts)


def lines(
    title: str,
    curves: Sequence[tuple[str, Sequence[tuple[float, float]], bool]],
    *,
    x_name: str,
    y_name: str,
) -> str:
    """Return curves over shared axes from 0: (label, points, ours)."""
    height, left, base = 340, 60, 290
    right_most = max(x for _, points, _ in curves for x, _ in points)
    highest = max(y for _, points, _ in curves for _, y in points) or 1.0
    x_scale, y_scale = (WIDTH - left - MARGIN) / right_most, (base - TOP) / highest
    parts = [f'<text class="t" x="8" y="22">{escape(title)}</text>']
    for part in range(5):
        y, x = base - part / 4 * (base - TOP), left + part / 4 * (WIDTH - left - MARGIN)
        parts.append(
            f'<line class="g" x1="{left}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{highest * part / 4:.3g}</text>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{base + 18}" text-anchor="middle">{right_most * part / 4:.3g}</text>'
        )
    for index, (label, points, is_ours) in enumerate(curves):
        path = " ".join(f"{left + x * x_scale:.1f},{base - y * y_scale:.1f}" for x, y in points)
        parts.append(f'<polyline class="{"o" if is_ours else "p"}" points="{path}"/>')
        last_x, last_y = points[-1]
        y = base - last_y * y_scale + 4 - 14 * index * (last_y == curves[0][1][-1][1])
        parts.append(
            f'<text x="{left + last_x * x_scale + 6:.1f}" y="{y:.1f}">{escape(label)}</text>'
        )
    parts.append(
        f'<text x="{(WIDTH - MARGIN + left) / 2}" y="{height - 10}" text-anchor="middle">{escape(x_name)}</text>'
    )
    parts.append(f'<text x="8" y="{TOP - 6}">{escape(y_name)}</text>')
    return _svg(height, title, parts)


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title, quote=True)}">{_STYLE}\n{body}\n</svg>\n'
    )
