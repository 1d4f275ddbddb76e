FAILS_AS = {
    "is_always_pipelined": ("AS_IF_PIPELINED", "all times add up"),
    "is_never_pipelined": ("AS_IF_NOT_PIPELINED", "narrowest"),
    "forgets_latency": ("NO_LATENCY", "even if there are few bytes"),
    "pays_the_first_latency_only": ("ONE_LATENCY", "has to pass every hop"),
    "takes_the_slowest_hop": ("SLOWEST_HOP_ONLY or ONE_LATENCY", "has to pass"),
    "counts_bits": ("BITS", "multiply by 8"),
    "takes_the_widest_pipe": ("FASTEST_HOP", "lowest bandwidth"),
    "adds_bandwidths": ("NUMBER", "with units"),
    "fails_without_hops": ("RAISED", "Only a way without hops"),
    "never_arrives_without_hops": ("NUMBER", "Only a way without hops"),
    "sorts_the_hops": ("MODIFIED", "belongs to the caller"),
    "returns_milliseconds": ("NUMBER", "with units"),
    "pays_latency_once_more": ("NUMBER", "on paper"),
}


def one_by_one(num_bytes, hops):
    return sum(latency + num_bytes / bandwidth for latency, bandwidth in hops)


def piped(num_bytes, hops):
    latencies = sum(latency for latency, _ in hops)
    return latencies + max((num_bytes / bandwidth for _, bandwidth in hops), default=0)


def right(num_bytes, hops, pipelined):
    return piped(num_bytes, hops) if pipelined else one_by_one(num_bytes, hops)


def is_always_pipelined(num_bytes, hops, pipelined=False):
    return piped(num_bytes, hops)


def is_never_pipelined(num_bytes, hops, pipelined=False):
    return one_by_one(num_bytes, hops)


def forgets_latency(num_bytes, hops, pipelined=False):
    return right(num_bytes, [(0.0, bandwidth) for _, bandwidth in hops], pipelined)


def pays_the_first_latency_only(num_bytes, hops, pipelined=False):
    first = hops[0][0] if hops else 0.0
    return first + forgets_latency(num_bytes, hops, pipelined)


def takes_the_slowest_hop(num_bytes, hops, pipelined=False):
    if not pipelined:
        return one_by_one(num_bytes, hops)
    return max((latency + num_bytes / bandwidth for latency, bandwidth in hops), default=0)


def counts_bits(num_bytes, hops, pipelined=False):
    return right(8 * num_bytes, hops, pipelined)


def takes_the_widest_pipe(num_bytes, hops, pipelined=False):
    if not pipelined:
        return one_by_one(num_bytes, hops)
    latencies = sum(latency for latency, _ in hops)
    return latencies + min((num_bytes / bandwidth for _, bandwidth in hops), default=0)


def adds_bandwidths(num_bytes, hops, pipelined=False):
    latencies = sum(latency for latency, _ in hops)
    return latencies + (num_bytes / sum(bandwidth for _, bandwidth in hops) if hops else 0)


def fails_without_hops(num_bytes, hops, pipelined=False):
    if not pipelined:
        return one_by_one(num_bytes, hops)
    return sum(latency for latency, _ in hops) + num_bytes / min(bandwidth for _, bandwidth in hops)


def sorts_the_hops(num_bytes, hops, pipelined=False):
    hops.sort(key=lambda hop: hop[1])
    return right(num_bytes, hops, pipelined)


def returns_milliseconds(num_bytes, hops, pipelined=False):
    return 1000 * right(num_bytes, hops, pipelined)


def pays_latency_once_more(num_bytes, hops, pipelined=False):
    return right(num_bytes, hops, pipelined) + (hops[-1][0] if hops else 0)


def never_arrives_without_hops(num_bytes, hops, pipelined=False):
    return right(num_bytes, hops, pipelined) if hops else float("inf")
