# ruff: noqa: F821
from itertools import pairwise

FAILS_AS = {
    "measures_every_pair": ("TOO_MANY_MESSAGES", "small ones are enough"),
    "keeps_the_first_message": ("LINK_TOO_SLOW", "first message"),
    "takes_means": ("OTHER_NODES or OTHER_LINK or LINK_TOO_SLOW", ""),
    "expects_neighbours": ("OTHER_NODES", "as fast as the fastest"),
    "expects_two_nodes": ("OTHER_NODES", "as fast as the fastest"),
    "fits_absolute_errors": ("OTHER_LINK", "fit relative errors"),
    "fits_small_messages": ("OTHER_LINK", "many megabytes"),
    "across_first": ("LINKS_SWAPPED", "inside a node first"),
    "beta_first": ("SWAPPED", "Return (alpha, beta)"),
    "bandwidths_instead_of_betas": ("A_RATE", "reciprocal of the bandwidth"),
    "forgets_the_links": ("WRONG_TYPE", "what the function returns"),
    "looks_into_the_cluster": ("NOT_MEASURED", "Only messages tell"),
    "sends_to_itself": ("RAISED", "Read the line"),
}


def typical(send, source, destination, num_bytes, warmup=1, summary=statistics.median):
    for _ in range(warmup):
        send(source, destination, num_bytes)
    return summary([send(source, destination, num_bytes) for _ in range(5)])


def limit_of(latencies):
    low, high = max(pairwise(sorted(latencies)), key=lambda pair: pair[1] / pair[0])
    return (low * high) ** 0.5


def found_nodes(send, num_ranks, **options):
    limit = limit_of([typical(send, 0, rank, 8, **options) for rank in range(1, num_ranks)])
    nodes = []
    for rank in range(num_ranks):
        near = (node for node in nodes if typical(send, node[0], rank, 8, **options) < limit)
        node = next(near, None)
        if node is None:
            nodes.append(node := [])
        node.append(rank)
    return nodes


def fit(send, source, destination, power=1, largest=9, **options):
    """Least squares with weights 1 / t^power: of relative errors for 1, of absolute ones for 0."""
    sizes = [8.0 * 8**exponent for exponent in range(largest)]
    times = [typical(send, source, destination, int(size), **options) for size in sizes]
    a, b, c = ([x / t**power for x, t in zip(xs, times, strict=True)] for xs in ([1] * largest, sizes, times))
    aa, ab, bb = (sum(x * y for x, y in zip(*pair, strict=True)) for pair in ((a, a), (a, b), (b, b)))
    ac, bc = (sum(x * y for x, y in zip(*pair, strict=True)) for pair in ((a, c), (b, c)))
    determinant = aa * bb - ab * ab
    return (ac * bb - bc * ab) / determinant, (bc * aa - ac * ab) / determinant


def links(send, nodes, **options):
    pairs = (nodes[0][1], nodes[0][0]), (nodes[1][0], nodes[0][0])  # over which nothing has been sent
    return tuple(fit(send, *pair, **options) for pair in pairs)


def measured(send, num_ranks, **options):
    """Right, with links that may be fitted in another way."""
    nodes = found_nodes(send, num_ranks)
    return nodes, *links(send, nodes, **options)


def measures_every_pair(send, num_ranks):
    for source in range(num_ranks):
        for destination in range(num_ranks):
            if source != destination:
                for size in (8, 4096, 1 << 20, 1 << 27):
                    typical(send, source, destination, size)
    return measured(send, num_ranks)


def keeps_the_first_message(send, num_ranks):
    return measured(send, num_ranks, warmup=0, summary=statistics.mean)


def takes_means(send, num_ranks):
    return measured(send, num_ranks, summary=statistics.mean)


def expects_neighbours(send, num_ranks):
    nodes, inside, across = measured(send, num_ranks)
    sizes = [len(node) for node in nodes]
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    return [list(range(at, at + n)) for at, n in zip(starts, sizes, strict=True)], inside, across


def expects_two_nodes(send, num_ranks):
    nodes, inside, across = measured(send, num_ranks)
    return [nodes[0], [rank for node in nodes[1:] for rank in node]], inside, across


def fits_absolute_errors(send, num_ranks):
    return measured(send, num_ranks, power=0)


def fits_small_messages(send, num_ranks):
    return measured(send, num_ranks, largest=4)


def across_first(send, num_ranks):
    nodes, inside, across = measured(send, num_ranks)
    return nodes, across, inside


def beta_first(send, num_ranks):
    nodes, *links = measured(send, num_ranks)
    return nodes, *[(beta, alpha) for alpha, beta in links]


def bandwidths_instead_of_betas(send, num_ranks):
    nodes, *links = measured(send, num_ranks)
    return nodes, *[(alpha, 1 / beta) for alpha, beta in links]


def forgets_the_links(send, num_ranks):
    return found_nodes(send, num_ranks)


def looks_into_the_cluster(send, num_ranks):
    cluster = getattr(send, "__self__", None) or send.__closure__[0].cell_contents
    alphas, betas = cluster.alphas, cluster.betas
    limit = limit_of(alphas[0][1:])
    nodes = []
    for rank in range(num_ranks):
        near = (node for node in nodes if alphas[node[0]][rank] < limit)
        node = next(near, None)
        if node is None:
            nodes.append(node := [])
        node.append(rank)
    (i, j), k = nodes[0][:2], nodes[1][0]
    return nodes, (alphas[i][j], betas[i][j]), (alphas[i][k], betas[i][k])


def sends_to_itself(send, num_ranks):
    return [[rank for rank in range(num_ranks) if send(0, rank, 8) < 1e-3]], (0.0, 0.0), (0.0, 0.0)
