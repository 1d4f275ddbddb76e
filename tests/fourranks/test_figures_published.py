"""The figures of vendors that lectures quote, and the listings of machines that come with the package."""

import pytest

from fourranks.doctor import topology
from fourranks.figures import published


@pytest.mark.parametrize(
    "name, ridge",
    [
        ("A100 SXM", 153),
        ("H100 PCIe", 378),
        ("H100 SXM", 295),
        ("H100 NVL", 214),
        ("H200 SXM", 206),
        ("B200 SXM", 281),
    ],
)
def test_the_ridge_of_each_gpu_is_that_of_its_published_figures(name, ridge):
    assert round(published.GPUS[name].ridge) == ridge


def test_bandwidths_are_for_one_direction():
    h100 = published.GPUS["H100 SXM"]
    assert h100.nvlink_bandwidth == 900e9 / 2
    assert h100.pcie_bandwidth == pytest.approx(128e9 / 2, rel=0.02)
    assert h100.hbm_bandwidth / h100.nvlink_bandwidth == pytest.approx(7.4, abs=0.05)


def test_the_ladder_has_no_empty_cell_and_every_rung_is_slower_than_the_one_before():
    bandwidths = [rung.bandwidth for rung in published.LADDER]
    latencies = [rung.latency for rung in published.LADDER]
    assert all(rung.size and rung.bandwidth and rung.latency for rung in published.LADDER)
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert latencies == sorted(latencies)


def test_the_bandwidth_of_shared_memory_is_128_bytes_a_cycle_on_each_sm():
    assert published.LADDER[1].bandwidth == pytest.approx(33.5e12, rel=0.01)


@pytest.mark.parametrize("name", published.TOPOLOGIES)
def test_every_listing_is_a_complete_and_symmetric_table(name):
    found = topology.parse(published.topology(name))
    assert len(found.gpus) == int(name.partition("_")[0])
    assert found.entries.keys() == {(one, other) for one in found.devices for other in found.devices}
    assert all(entry == found.entries[other, one] for (one, other), entry in found.entries.items())


def test_every_file_of_listings_has_a_description():
    folder = published.files("fourranks.figures") / "topologies"
    assert {file.name for file in folder.iterdir()} == {f"{name}.txt" for name in published.TOPOLOGIES}


def test_a_listing_that_there_is_not_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(KeyError, match="choose one of 8_h100"):
        published.topology("dgx")
