"""Draw the figures of the concept pages: ``python docs/make_figures.py``.

Each is an SVG of its own on a light panel, so that it can be read on a dark page too. Colours are
those of Okabe and Ito; what they say is also said by pattern, shape or label.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, SAND, INK, GREY = (
    "#0072b2", "#d55e00", "#8fce9b", "#f0dca0", "#222222", "#8a8a8a",
)  # fmt: skip
SIZE = 44


def text(x: float, y: float, said: str, *, anchor: str = "start", size: int = 15,
         bold: bool = False, color: str = INK) -> str:  # fmt: skip
    """Return a line of text."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{color}"{weight}>{said}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, color: str = INK, width: float = 1.5,
         dash: str = "") -> str:  # fmt: skip
    """Return a straight line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
        f'stroke-width="{width}"{dashed}/>'
    )


def dot(x: float, y: float, color: str, radius: float = 5) -> str:
    """Return a filled circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{color}"/>'


def tile(x: float, y: float, shape: str, ground: str) -> str:
    """An image: a circle or a triangle, the class, on grass or on sand, the hint."""
    middle, fill = SIZE / 2, {"grass": GREEN, "sand": SAND, "": "#ffffff"}[ground]
    parts = [f'<g transform="translate({x:g},{y:g})"><rect width="{SIZE}" height="{SIZE}" rx="5" '
             f'fill="{fill}" stroke="#666666"/>']  # fmt: skip
    if ground == "grass":
        blades = "".join(f"M{a} {SIZE - 3}l2 -8M{a + 4} {SIZE - 3}l-1 -6" for a in range(5, 38, 9))
        parts.append(f'<path d="{blades}" stroke="#2f7d3d" stroke-width="1.5"/>')
    if ground == "sand":
        spots = ((7, 37), (14, 33), (21, 39), (29, 34), (36, 38), (8, 9), (35, 9))
        parts += [f'<circle cx="{a}" cy="{b}" r="1.5" fill="#8a6d1d"/>' for a, b in spots]
    if shape == "circle":
        parts.append(f'<circle cx="{middle}" cy="{middle - 2}" r="11" fill="{BLUE}"/>')
    else:
        parts.append(f'<path d="M{middle} 8L34 30H10Z" fill="{ORANGE}"/>')
    return "".join([*parts, "</g>"])


def rows(x: float, y: float, title: str, supports: list[str], queries: list[str]) -> list[str]:
    """A task of two classes; a letter says the hint of each image: g for grass, s for sand."""
    hint = {"g": "grass", "s": "sand"}
    step = SIZE + 6
    query = x + step * len(supports[0]) + 24
    parts = [text(x, y, title, bold=True), text(x, y + 22, "support", size=13, color="#555555"),
             text(query, y + 22, "queries", size=13, color="#555555")]  # fmt: skip
    for row, shape in enumerate(("circle", "triangle")):
        top = y + 32 + row * step
        parts += [tile(x + i * step, top, shape, hint[h]) for i, h in enumerate(supports[row])]
        parts += [tile(query + i * step, top, shape, hint[h]) for i, h in enumerate(queries[row])]
    return parts


def save(name: str, width: int, height: int, parts: list[str]) -> None:
    """Write a figure on its panel."""
    body = "\n".join(parts)
    (IMAGES / f"concept-{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif">\n'
        f'<rect width="{width}" height="{height}" rx="10" fill="#fafaf7"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )


def arms() -> None:
    """Draw a random and a biased task."""
    parts = rows(20, 34, "Random task (R)", ["gsg", "sgs"], ["gsg", "sgs"])
    parts += rows(390, 34, "Biased task (A)", ["ggg", "sss"], ["sss", "ggg"])
    parts.append(text(20, 196, "The background says nothing about the class.", size=14))
    parts.append(text(390, 196, "Learning the background is punished.", size=14))
    save("arms", 730, 216, parts)


def words() -> None:
    """Draw images with words, and which of these are spurious."""
    cells = [("circle", "grass", "animal, grass"), ("circle", "sand", "animal, sand"),
             ("circle", "grass", "animal, grass")]  # fmt: skip
    parts = [text(20, 32, "Class circle", bold=True), text(90, 32, "", bold=True)]
    for i, (shape, ground, told) in enumerate(cells):
        top = 46 + i * 52
        parts += [tile(20, top, shape, ground), text(84, top + 28, told)]
    told = (
        ("animal", "in every image of the class: not spurious"),
        ("grass", "in some, missing in others: spurious"),
        ("sand", "in some, missing in others: spurious"),
        ("snow", "in no image: not spurious"),
    )
    for i, (word, why) in enumerate(told):
        parts += [text(300, 56 + i * 40, word, bold=True), text(370, 56 + i * 40, why, size=14)]
    save("words", 730, 214, parts)


def contexts() -> None:
    """Draw a task with queries in the contexts of the support, and in others."""
    parts = rows(20, 34, "IID task", ["ggg", "sss"], ["ggg", "sss"])
    parts += rows(390, 34, "OOD task", ["ggg", "sss"], ["sss", "ggg"])
    parts.append(text(20, 196, "The same support in both; queries in its context, or in another.",
                      size=14))  # fmt: skip
    save("contexts", 730, 216, parts)


def harm() -> None:
    """Draw the two questions about a word."""
    parts = [text(20, 32, "tied: every support image of the class has the word", bold=True)]
    parts += [tile(20 + i * 50, 44, "circle", "grass") for i in range(3)]
    parts += [text(196, 72, "→ which class gets a query?", size=14)]
    parts += [tile(440, 44, "circle", "sand"), text(496, 72, "a circle without grass")]
    parts += [text(20, 132, "present: a query has the word", bold=True)]
    parts += [tile(20, 144, "circle", "grass"), text(78, 172, "against", size=14)]
    parts += [tile(140, 144, "circle", "sand"), text(196, 172, "with the same support", size=14)]
    save("harm", 730, 208, parts)


def placebo() -> None:
    """Draw a gap and that of its placebo, as measured on the cue-conflict images."""
    parts = [text(20, 32, "wAcc gap in points, network trained on ImageNet, cue-conflict images",
                  bold=True)]  # fmt: skip

    def x(value: float) -> float:
        return 200 + (value + 2) * 42

    parts += [line(x(v), 50, x(v), 130, "#dddddd") for v in (0, 2, 4, 6, 8, 10)]
    parts += [text(x(v), 148, str(v), anchor="middle", size=13) for v in (0, 2, 4, 6, 8, 10)]
    parts.append(line(x(0), 50, x(0), 130, GREY, 2))
    for i, (name, value, half, color) in enumerate(
        (("biased tasks", 8.2, 0.5, ORANGE), ("placebo", -0.5, 0.7, BLUE))
    ):
        y = 72 + i * 38
        parts += [text(20, y + 5, name), line(x(value - half), y, x(value + half), y, color, 3),
                  dot(x(value), y, color, 6)]  # fmt: skip
    save("placebo", 730, 160, parts)


def intervals() -> None:
    """Means of 600 tasks of 50 images, drawn from 1,000 images of a source with accuracy 47 %."""
    rng, truth, tasks, of_task = np.random.default_rng(3), 0.47, 600, 50
    parts = [text(20, 32, "closed: tasks share images", bold=True),
             text(380, 32, "open: the same values, over images", bold=True)]  # fmt: skip

    def x(value: float, left: int) -> float:
        return left + 160 + (value - truth) * 2600

    for left in (20, 380):
        parts += [line(x(truth, left), 44, x(truth, left), 270, GREY, 1.5, "4 4"),
                  text(x(truth, left), 288, "other images", anchor="middle", size=13)]  # fmt: skip
    for i in range(20):
        images = rng.random(1000) < truth
        means = np.array([images[rng.choice(1000, of_task, replace=False)].mean()
                          for _ in range(tasks)])  # fmt: skip
        mean = means.mean()
        halves = (1.96 * means.std(ddof=1) / math.sqrt(tasks),
                  1.96 * math.sqrt(mean * (1 - mean) / 1000))  # fmt: skip
        for left, half in zip((20, 380), halves, strict=True):
            y, held = 54 + i * 11, abs(mean - truth) <= half
            color = BLUE if held else ORANGE
            parts.append(line(x(mean - half, left), y, x(mean + half, left), y, color, 3,
                              "" if held else "5 2"))  # fmt: skip
    parts.append(line(20, 306, 60, 306, ORANGE, 3, "5 2"))
    parts.append(text(70, 311, "misses the accuracy on other images", size=13))
    save("intervals", 730, 324, parts)


def robustness() -> None:
    """Draw methods around the line that predicts the tested arm from the control."""

    def place(control: float, biased: float) -> tuple[float, float]:
        return 90 + control * 4.2, 300 - biased * 2.7

    def logit(share: float) -> float:
        return math.log(share / (1 - share))

    def predicted(control: float) -> float:
        return 100 / (1 + math.exp(-(0.9 * logit(control / 100) - 0.9)))

    parts = [line(*place(0, 0), *place(100, 0)), line(*place(0, 0), *place(0, 100))]
    curve = " ".join("{:.1f},{:.1f}".format(*place(v, predicted(v))) for v in range(4, 97, 2))
    parts.append(f'<polyline points="{curve}" fill="none" stroke="{GREY}" stroke-width="2" '
                 'stroke-dasharray="6 4"/>')  # fmt: skip
    for control, off in ((30, 1), (45, -3), (55, 2), (66, -1), (72, 11), (80, -9), (88, 2)):
        biased = predicted(control) + off
        color = BLUE if off > 5 else ORANGE if off < -5 else INK
        parts.append(dot(*place(control, biased), color, 6))
        if abs(off) > 5:
            parts.append(line(*place(control, biased), *place(control, predicted(control)), color))
    high, low = place(72, predicted(72) + 11), place(80, predicted(80) - 9)
    parts += [text(high[0] - 10, high[1] - 10, "more robust than its equals",
                   anchor="end", size=14, color=BLUE),
              text(low[0] + 12, low[1] + 16, "less robust", size=14, color=ORANGE),
              text(*place(101, 84), "predicted", size=13, color="#555555"),
              text(300, 334, "wAcc-R (%)", anchor="middle", size=14),
              text(100, 24, "wAcc-A (%)", size=14)]  # fmt: skip
    for value in (0, 50, 100):
        x, y = place(value, value)
        parts += [text(x, 316, str(value), anchor="middle", size=13),
                  text(82, y + 5, str(value), anchor="end", size=13)]  # fmt: skip
    save("robustness", 730, 340, parts)


if __name__ == "__main__":
    for draw in (arms, words, contexts, harm, placebo, intervals, robustness):
        draw()
