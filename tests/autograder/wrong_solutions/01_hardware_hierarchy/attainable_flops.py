FAILS_AS = {
    "never_reaches_the_peak": ("NOT_CAPPED", "cannot exceed their peak"),
    "always_at_the_peak": ("ALWAYS_THE_PEAK", "Below the ridge"),
    "takes_the_larger_limit": ("ALWAYS_THE_PEAK", "Below the ridge"),
    "rounds_the_ridge_down": ("ALWAYS_THE_PEAK", "Below the ridge"),
    "delivers_bits": ("NUMBER", "with units"),
    "adds_both_limits": ("ADDED", "at the same time"),
    "divides_by_the_bandwidth": ("NUMBER", "with units"),
    "returns_a_share_of_the_peak": ("NUMBER", "with units"),
    "computes_in_float32": ("LOST_DIGITS", "Python floats"),
    "says_which_limit_it_is": ("NOT_A_NUMBER", "Python float"),
}


def never_reaches_the_peak(intensity, peak_flops, bandwidth):
    return intensity * bandwidth


def always_at_the_peak(intensity, peak_flops, bandwidth):
    return peak_flops


def takes_the_larger_limit(intensity, peak_flops, bandwidth):
    return max(peak_flops, intensity * bandwidth)


def rounds_the_ridge_down(intensity, peak_flops, bandwidth):
    return peak_flops if intensity > peak_flops // bandwidth else intensity * bandwidth


def delivers_bits(intensity, peak_flops, bandwidth):
    return min(peak_flops, 8 * intensity * bandwidth)


def adds_both_limits(intensity, peak_flops, bandwidth):
    return peak_flops + intensity * bandwidth


def divides_by_the_bandwidth(intensity, peak_flops, bandwidth):
    return min(peak_flops, intensity / bandwidth)


def returns_a_share_of_the_peak(intensity, peak_flops, bandwidth):
    return min(1.0, intensity * bandwidth / peak_flops)


def computes_in_float32(intensity, peak_flops, bandwidth):
    return torch.tensor(intensity * bandwidth).clamp(max=peak_flops).item()  # noqa: F821


def says_which_limit_it_is(intensity, peak_flops, bandwidth):
    return (min(peak_flops, intensity * bandwidth), "memory")
