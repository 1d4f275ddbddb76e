# ruff: noqa: F821
FAILS_AS = {
    "believes_every_time": ("TOO_SHORT_BELIEVED", "the clock was stopped before"),
    "accuses_what_is_rounded": ("RIGHT_ACCUSED", "within one percent of busbw"),
    "takes_GiB_for_right": ("GIB_NOT_FOUND", "7 % too low"),
    "knows_no_algbw": ("ALGBW_NOT_FOUND", "figure is S / t"),
    "forgets_the_part": ("PART_NOT_FOUND", "one rank's part"),
    "finds_parts_everywhere": ("EXPLAINED_WRONGLY", "three collectives only"),
    "forgets_both_directions": ("BOTH_DIRECTIONS_NOT_FOUND", "twice busbw"),
    "forgets_the_sum_over_ranks": ("SUM_NOT_FOUND", "all ranks send"),
    "always_has_an_explanation": ("EXPLAINED_WRONGLY", 'return "unexplained"'),
    "looks_at_algbw_first": ("RIGHT_ACCUSED", "the first verdict of the table applies"),
    "stops_at_the_first_fault": ("ANOTHER_NUMBER_OF_VERDICTS", "one verdict for each line"),
    "compares_the_report_with_the_link": ("LONG_ENOUGH_ACCUSED", "correct busbw"),
    "compares_algbw_with_the_link": ("LONG_ENOUGH_ACCUSED", "correct busbw"),
    "adds_to_its_first_verdicts": ("FROM_AN_EARLIER_CALL", "filled again"),
    "remembers_lines_by_their_number": ("FROM_AN_EARLIER_CALL", "filled again"),
    "empties_the_log": ("MODIFIED", "belongs to the caller"),
    "returns_one_word": ("WRONG_TYPE", "what the function returns"),
}


def figures(line):
    name, n = line["collective"], line["world_size"]
    plain = line["num_bytes"] / line["seconds"]
    right = plain * factor(name, n)
    found = {"right": right, "algbw": plain, "GiB": right / 1.024**3}
    if name in ("reduce_scatter", "all_gather", "all_to_all"):
        found["part"] = right / n
    return found | {"both directions": 2 * right, "all ranks": n * right}


def nearest(found, line, tolerance=0.01):
    near = (name for name, value in found.items() if abs(value / line["reported"] - 1) <= tolerance)
    return next(near, "unexplained")


def audited(log, link, change=lambda found: found, tolerance=0.01):
    """Right, with figures that may be changed."""
    return [
        "not finished" if figures(line)["right"] > link else nearest(change(figures(line)), line, tolerance)
        for line in log
    ]


def without(name):
    return lambda found: {key: value for key, value in found.items() if key != name}


def adds_to_its_first_verdicts(log, link, verdicts=[]):  # noqa: B006
    verdicts += audited(log, link)
    return verdicts


KNOWN = {}


def remembers_lines_by_their_number(log, link):
    return [KNOWN.setdefault(number, verdict) for number, verdict in enumerate(audited(log, link))]


def believes_every_time(log, link):
    return audited(log, float("inf"))


def accuses_what_is_rounded(log, link):
    return audited(log, link, tolerance=1e-6)


def takes_GiB_for_right(log, link):
    return audited(log, link, tolerance=0.08)


def knows_no_algbw(log, link):
    return audited(log, link, without("algbw"))


def forgets_the_part(log, link):
    return audited(log, link, without("part"))


def finds_parts_everywhere(log, link):
    return [
        "not finished" if figures(line)["right"] > link else nearest(with_part(line), line) for line in log
    ]


def with_part(line):
    return figures(line) | {"part": figures(line)["right"] / line["world_size"]}


def forgets_both_directions(log, link):
    return audited(log, link, without("both directions"))


def forgets_the_sum_over_ranks(log, link):
    return audited(log, link, without("all ranks"))


def always_has_an_explanation(log, link):
    return ["both directions" if own == "unexplained" else own for own in audited(log, link)]


def looks_at_algbw_first(log, link):
    return audited(log, link, lambda found: {"algbw": found["algbw"], **found})


def stops_at_the_first_fault(log, link):
    verdicts = audited(log, link)
    faults = [place for place, own in enumerate(verdicts) if own != "right"]
    return verdicts[: faults[0] + 1] if faults else verdicts


def compares_the_report_with_the_link(log, link):
    return ["not finished" if line["reported"] > link else nearest(figures(line), line) for line in log]


def compares_algbw_with_the_link(log, link):
    return ["not finished" if figures(line)["algbw"] > link else nearest(figures(line), line) for line in log]


def empties_the_log(log, link):
    verdicts = []
    while log:
        verdicts += audited([log.pop(0)], link)
    return verdicts


def returns_one_word(log, link):
    return "right"
