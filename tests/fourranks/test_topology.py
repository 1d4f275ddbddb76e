"""Reading `nvidia-smi topo -m` as machines of several kinds print it (`published.TOPOLOGIES`)."""

from pathlib import Path

import pytest

from fourranks.doctor import topology
from fourranks.figures import published

DATA = Path(__file__).parent / "data"


def read(name: str) -> topology.Topology:
    return topology.parse(published.topology(name))


@pytest.mark.parametrize(
    "name, devices, gpus, bottleneck",
    [
        ("8_a100", 20, 8, "NV12"),  # NVSwitch, network cards by their own names
        ("4_h100", 4, 4, "NV18"),  # underlined head, empty cells of CPU affinity
        ("8_v100", 10, 8, "NV2"),  # no NVLink between some pairs, but a ring of them through all
        ("2_phb", 2, 2, "PHB"),
        ("2_sys", 6, 2, "SYS"),  # network cards explained in a legend of their own
        ("5_pcie", 5, 5, "SYS"),  # columns by spaces, as in a log
    ],
)
def test_the_bottleneck_is_the_worst_link_of_the_best_ring(name, devices, gpus, bottleneck):
    found = read(name)
    assert (len(found.devices), len(found.gpus), found.bottleneck()) == (devices, gpus, bottleneck)


def test_every_pair_of_devices_has_its_entry_both_ways():
    found = read("8_v100")
    assert len(found.entries) == len(found.devices) ** 2
    assert found.entries["GPU0", "GPU7"] == found.entries["GPU7", "GPU0"] == "NV2"
    assert found.entries["GPU0", "GPU4"] == found.entries["GPU4", "GPU0"] == "SYS"
    assert found.entries["GPU6", "mlx5_1"] == found.entries["mlx5_1", "GPU6"] == "PIX"


def test_network_cards_have_the_entries_of_their_own_column():
    found = read("2_sys")
    assert [found.entries["GPU0", f"NIC{number}"] for number in range(4)] == ["PHB", "PHB", "SYS", "SYS"]


def test_gpus_bridged_in_pairs_have_no_ring_of_nvlinks():
    links = {("GPU0", "GPU1"): "NV4", ("GPU2", "GPU3"): "NV4"}
    entries = {
        (one, other): links.get((min(one, other), max(one, other)), "PHB")
        for one in ("GPU0", "GPU1", "GPU2", "GPU3")
        for other in ("GPU0", "GPU1", "GPU2", "GPU3")
    }
    found = topology.Topology(("GPU0", "GPU1", "GPU2", "GPU3"), entries)
    assert found.bottleneck() == "PHB"


def test_a_description_names_the_fastest_links_first_and_what_they_are():
    assert topology.describe(read("8_a100")) == "NV12 (12 NVLinks) between all 8 GPUs"
    assert topology.describe(read("2_sys")) == "SYS (PCIe and the link between processors) between both GPUs"
    first, second, third = topology.describe(read("5_pcie")).splitlines()
    assert first == "PHB (PCIe and the processor's host bridge) between GPUs 1↔2, 3↔4"
    assert (second[:4], third[:3]) == ("NODE", "SYS")


def test_links_are_ordered_from_the_fastest_to_the_unknown():
    links = ["?", "SYS", "NV1", "PHB", "NV18", "PIX", "NODE", "PXB"]
    ordered = ["NV18", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS", "?"]
    assert sorted(links, key=topology.distance) == ordered


def test_the_table_of_peer_access_reads_the_same_way():
    assert topology.parse((DATA / "p2p_2_gns.txt").read_text()).between_gpus() == {("GPU0", "GPU1"): "GNS"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found",
        "GPU0 is lost. Reboot the system to recover this GPU",
        "Failed to run topology command: Unknown Error",
    ],
)
def test_what_is_no_table_is_refused(text):
    with pytest.raises(ValueError, match="no table"):
        topology.parse(text)
