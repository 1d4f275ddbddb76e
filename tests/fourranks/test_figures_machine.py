"""Figures of a machine's speed: the places of their parts, and that unknown ones are left out."""

import pytest

from fourranks.doctor import topology as topologies
from fourranks.figures import machine, published
from fourranks.figures.published import Rung

H100 = (989e12, 3.35e12)


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_the_ladder_has_a_panel_for_size_bandwidth_and_latency_and_leaves_out_what_is_not_published():
    rungs = [Rung("near", size=2**20, latency=1e-9), Rung("far", size=80e9, bandwidth=5e10, latency=2e-6)]
    figure = machine.ladder(rungs, "how far")
    sizes, bandwidths, latencies = figure.axes
    assert [label.get_text() for label in sizes.get_yticklabels()] == ["near", "far"]
    assert (texts(sizes), texts(bandwidths)) == (["1 MiB", "80 GB"], ["50 GB/s"])
    assert texts(latencies) == ["0.001 µs", "2 µs"]
    assert all(axes.get_xscale() == "log" for axes in figure.axes)


def test_the_ladder_writes_thousands_of_gigabytes_as_terabytes():
    sizes, bandwidths, _ = machine.ladder([Rung("far", size=2e12, bandwidth=3.35e12, latency=1e-6)]).axes
    assert (texts(sizes), texts(bandwidths)) == (["2 TB"], ["3.35 TB/s"])


def test_the_published_ladder_can_be_drawn():
    assert machine.ladder(published.LADDER).png().startswith(b"\x89PNG")


def test_the_curve_of_copies_is_drawn_with_the_ends_of_the_caches_that_it_crosses_and_the_prediction():
    curve = {2**exponent: 1e11 / exponent for exponent in range(12, 20)}
    figure = machine.copies({"1 rank": curve}, {"L1": 2**15, "L3": 2**25}, yours=2e10, others={"HBM": 3e12})
    (axes,) = figure.axes
    assert texts(axes) == ["L1 ends", "HBM"]
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert drawn["1 rank"] == (list(curve), list(curve.values()))
    assert drawn["your prediction"] == ([2**12], [2e10])
    assert figure.png().startswith(b"\x89PNG")


def test_a_roofline_bends_at_peak_over_bandwidth():
    figure = machine.roofline({"this": (1e11, 2e10), "H100": H100}, {0.5: 9e9}, yours=7.0)
    (axes,) = figure.axes
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert drawn["this: ridge at 5"] == (
        pytest.approx([0.1, 5.0, drawn["this: ridge at 5"][0][2]]),
        [2e9, 1e11, 1e11],
    )
    assert drawn["H100: ridge at 295"][1][2] == 989e12
    assert drawn["measured on this machine"] == ([0.5], [9e9])
    assert drawn["your ridge"] == ([7.0], [1e11])
    assert figure.png().startswith(b"\x89PNG")


def test_without_points_and_prediction_there_are_only_roofs():
    (axes,) = machine.roofline({"H100": H100}).axes
    assert [line.get_label() for line in axes.lines] == ["H100: ridge at 295"]


@pytest.mark.parametrize("name", published.TOPOLOGIES)
def test_a_topology_is_drawn_with_every_entry_and_a_legend_of_its_links(name):
    found = topologies.parse(published.topology(name))
    figure = machine.topology(found, name)
    (axes,) = figure.axes
    expected = ["" if link == "X" else link for link in found.entries.values()]
    assert texts(axes) == expected
    legend = [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []
    assert legend == sorted(set(expected) - {""}, key=topologies.distance)
    assert figure.png().startswith(b"\x89PNG")
