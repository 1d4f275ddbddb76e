"""Every figure can be read: in words, in its smallest text, and in light and dark themes."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from fourranks.doctor.topology import Topology
from fourranks.figures import compare, curves, links, placements, published, schedule
from fourranks.figures.machine import copies, ladder, roofline, topology
from fourranks.figures.timings import calls, ratios, sizes
from fourranks.protocol.looks import Look
from fourranks.views import deadlock
from fourranks.views.collective import show
from fourranks.views.steps import steps
from fourranks.views.style import Figure, contrast
from fourranks.views.timeline import timeline
from fourranks.views.traffic import traffic

from .traces import call, trace

EIGHT = range(8)
NINE_PIXELS = 9 * 72 / 100  # in points, at 100 pixels an inch
PARTS_OF_A_TEXT = 0.1  # of its box; a colour that covers less is an edge that it runs over


def messages(world_size: int, values: int = 3, nbytes: int = 4):
    """A ring: in turn n each rank sends one value to the next."""
    rows = [[] for _ in range(world_size)]
    for turn in range(3):
        for rank in range(world_size):
            for op, peer in (("send", (rank + 1) % world_size), ("recv", (rank - 1) % world_size)):
                row = call(op, 10 * turn, 10 * turn + 5, ranks=tuple(range(world_size)), peer=peer)
                row.seq, row.nbytes = turn, nbytes << rank % 12
                row.look = Look([float(rank)] * values, range(turn % values, turn % values + 1))
                rows[rank].append(row)
    return trace(*rows)


def jobs(ranks: int) -> list[list[tuple]]:
    kinds = "FBW"
    return [[(kinds[n % 3], n // 3, rank + n, rank + n + 1) for n in range(9)] for rank in range(ranks)]


SERIES = {"Gloo": [(1024, 1e-3), (4096, 2e-3)], "NCCL": [(1024, 1e-5), (4096, 3e-5)]}
DEVICES = [f"GPU{n}" for n in EIGHT]
LINKS = ["NV18", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", "NV2"]
ENTRIES = {
    (a, b): "X" if a == b else LINKS[(n + m) % 8]
    for n, a in enumerate(DEVICES)
    for m, b in enumerate(DEVICES)
}
FIGURES: dict[str, Callable[[], Figure]] = {
    "show, moved": lambda: show([[rank, 10 * rank] for rank in EIGHT], [[rank, 0] for rank in EIGHT], "ring"),
    "show, summed": lambda: show([[2.0**rank] for rank in EIGHT], [[255.0]] * 8, "all_reduce"),
    "show, many ranks": lambda: show([[rank] * 9 for rank in range(64)], [[0]] * 64, "broadcast"),
    "steps": lambda: steps(messages(4)).overview,
    "steps, a round": lambda: steps(messages(8)).frames[0][1],
    "steps, large": lambda: steps(messages(32, values=20)).overview,
    "steps, none": lambda: steps(trace([], [])).overview,
    "timeline": lambda: timeline(messages(8)),
    "timeline, large": lambda: timeline(messages(32)),
    "traffic": lambda: traffic(messages(8, nbytes=1 << 14)),
    "traffic, large": lambda: traffic(messages(32, nbytes=1 << 14)),
    "curves": lambda: curves(
        {f"line {n}": [1.0 + n, 2.0] for n in range(6)}, marks={0.5: "half"}, title="loss"
    ),
    "links": lambda: links({"DDP": lambda at: 1e9 / (at + 1e9)}, {"here": (1e9, 0.3)}, {"NVLink": 4e11}),
    "placements": lambda: placements(
        [("X", 1, 1, "replicate"), "·", ("W", 1, 2, "rows"), "=", ("Y", 1, 2, "partial")]
    ),
    "schedule": lambda: schedule(jobs(8), "1F1B", "ms"),
    "compare": lambda: compare({"ring": 6.0, "naive": 12.0}, {"ring": 6.0}, {"naive": 9.0}, "MB", "bytes"),
    "compare, parts": lambda: compare({"a": {str(n): 1.0 for n in range(4)}}, title="parts"),
    "calls": lambda: calls([[0.01, 0.002, 0.002]] * 8, "first calls"),
    "sizes": lambda: sizes(SERIES, {"model": SERIES["Gloo"]}, title="time", mark=2e3, yours=3e3),
    "ratios": lambda: ratios({"busbw": 1.0, "algbw": 1.5}, {"busbw": 2.0}, "against the truth"),
    "ladder": lambda: ladder(published.LADDER, "how far"),
    "copies": lambda: copies(
        {"1 rank": {4096: 1e10, 1 << 20: 5e9}}, {"L1": 1 << 15}, 2e10, "copies", {"HBM": 3e12}
    ),
    "roofline": lambda: roofline({"H100": (989e12, 3.35e12)}, {1.0: 1e12}, 200.0, "roofline"),
    "topology": lambda: topology(Topology(DEVICES, ENTRIES), "8 GPUs"),
}


@pytest.fixture(params=FIGURES.values(), ids=FIGURES, scope="module")
def figure(request: pytest.FixtureRequest) -> Figure:
    return request.param()


class Images(HTMLParser):
    """The attributes of each <img>, as a browser reads them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.found.append(dict(attributes))


def test_a_figure_says_in_words_what_it_shows(figure):
    data, metadata = figure._repr_mimebundle_()
    (image,) = Images(data["text/html"]).found
    assert image["alt"] == data["text/plain"] == metadata["image/png"]["alt"] == figure.alt
    assert 20 < len(image["alt"]) < 2500
    assert image["src"].endswith(data["image/png"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("show, moved", "ring: rank 0 before 0, 0, after 0, 0; rank 1 before 1, 10, after 1, 0"),
        ("steps", "round 1, 4 messages, 60 B, rank 0 to 1, rank 1 to 2, rank 2 to 3, rank 3 to 0; round 2"),
        ("timeline", "send/recv on 8 ranks: 25 ms; bubble 0%; rank 0 waits 0% of the time"),
        ("traffic", "rank 0 sent 48 KiB to rank 1; rank 1 sent 96 KiB to rank 2"),
        ("curves", "loss: line 0 from 1 to 2; line 1 from 2 to 2"),
        ("placements", "X (replicated) · W (rows) = Y (partial sums), on 4 ranks"),
        ("schedule", "1F1B: rank 0: F0 B0 W0 F1 B1 W1 F2 B2 W2, idle 44%"),
        ("compare", "bytes: ring 6 MB, formula 6; naive 12 MB, your prediction 9"),
        ("compare, parts", "parts: a 4 (0 1, 1 1, 2 1, 3 1)"),
        ("ratios", "busbw × 1; algbw × 1.5; your prediction for busbw × 2"),
        ("sizes", "Gloo from 1 ms at 1 KiB to 2 ms at 4 KiB"),
        ("topology", "8 GPUs: GPU0 to all: X NV4 PIX"),
    ],
)
def test_the_words_are_made_from_what_is_drawn(name, told):
    assert told in FIGURES[name]().alt


def written(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def test_no_text_of_a_figure_is_smaller_than_nine_pixels(figure):
    assert written(figure)
    assert {
        text.get_text(): text.get_fontsize() for text in written(figure) if text.get_fontsize() < NINE_PIXELS
    } == {}


@pytest.mark.parametrize(
    ("ink", "ground"), [("_INK", "_PAPER"), ("_ON_CHIP", "_WAIT"), ("_ON_CHIP", "_ENDED")]
)
def test_the_picture_of_a_deadlock_has_a_contrast_of_four_and_a_half(ink, ground):
    light = np.array([to_rgb(getattr(deadlock, ink)), to_rgb(getattr(deadlock, ground))])
    for one, other in (light, in_dark(light)):
        assert contrast(tuple(one), tuple(other)) >= 4.5


def in_dark(colours: np.ndarray) -> np.ndarray:
    """Colours, from 0 to 1, as a browser changes them by `invert(1) hue-rotate(180deg)`."""
    rotation = np.array([[-0.574, 1.430, 0.144], [0.426, 0.430, 0.144], [0.426, 1.430, -0.856]])
    return ((1 - colours) @ rotation.T).clip(0, 1)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_has_a_contrast_of_four_and_a_half(figure, theme):
    figure.set_canvas(FigureCanvasAgg(figure))
    figure.canvas.draw()
    texts = [(text, text.get_window_extent().extents.round().astype(int)) for text in written(figure)]
    for text, _ in texts:
        text.set_alpha(0)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[::-1, :, :3] / 255
    low = {}
    for text, (left, bottom, right, top) in texts:
        text.set_alpha(None)
        behind = pixels[max(0, bottom) : top, max(0, left) : right].reshape(-1, 3)
        colours, counts = np.unique(behind, axis=0, return_counts=True)
        ground = colours[counts >= PARTS_OF_A_TEXT * counts.sum()]
        pair = [np.array([to_rgb(text.get_color())]), ground]
        ink, ground = [in_dark(each) for each in pair] if theme == "dark" else pair
        found = min((contrast(tuple(ink[0]), tuple(colour)) for colour in ground), default=21)
        if found < 4.5:
            low[text.get_text()] = round(found, 2)
    assert low == {}
