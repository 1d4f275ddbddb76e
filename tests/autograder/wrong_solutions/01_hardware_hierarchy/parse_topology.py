# ruff: noqa: F821
FAILS_AS = {
    "reads_gpus_only": ("ENTRY_MISSING", "network cards too"),
    "leaves_out_the_diagonal": ("ENTRY_MISSING", "an entry with itself"),
    "reads_the_upper_half_only": ("ENTRY_MISSING", "network cards too"),
    "cuts_at_tabs": ("ENTRY_MISSING or RAISED", "a"),
    "stumbles_over_terminal_codes": ("ENTRY_MISSING or RAISED", "a"),
    "is_one_column_off": ("ENTRY_WRONG", "its own column"),
    "takes_the_legend_for_rows": ("ENTRY_WRONG", "NIC Legend"),
    "takes_affinities_for_devices": ("ENTRY_TOO_MANY", "are not devices"),
    "returns_an_empty_table": ("NOT_REFUSED", "before you return it"),
    "fills_up_torn_rows": ("NOT_REFUSED", "an entry for each column"),
    "looks_for_the_last_row_only": ("NOT_REFUSED", "a row for each of them"),
    "believes_every_entry": ("NOT_REFUSED", "one of the known ones"),
    "runs_into_an_index_error": ("REFUSED_WRONGLY", "ValueError yourself"),
    "raises_without_a_word": ("REFUSED_SILENTLY", "what is wrong"),
    "joins_the_names": ("NO_PAIRS", "tuple of two names"),
    "makes_a_dictionary_for_each_row": ("NO_PAIRS", "one level"),
    "reads_one_digit": ("ENTRY_WRONG", "as it stands"),
    "returns_a_list": ("WRONG_TYPE", "the task"),
    "adds_to_its_first_table": ("FROM_AN_EARLIER_CALL", "filled again"),
    "keeps_its_first_table": ("FROM_AN_EARLIER_CALL", "filled again"),
    "returns_numbers_of_nvlinks": ("ENTRY_WRONG", "column"),
}
KNOWN = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")


def table(text, codes=r"\x1b\[\d*m", end="CPU"):
    """Devices of the head line, and for each the words of its row."""
    lines = [line.split() for line in re.sub(codes, "", text).splitlines()]
    head = next((number for number, words in enumerate(lines) if words[:1] == ["GPU0"]), None)
    if head is None:
        raise ValueError("no table")
    devices = []
    for word in lines[head]:
        if word == end:
            break
        devices.append(word)
    rows = {words[0]: words[1:] for words in lines[head + 1 :] if words and words[0] in devices}
    return devices, rows


def right(text):
    devices, rows = table(text)
    if len(rows) < len(devices) or any(
        len(row) < len(devices) or not all(map(KNOWN.fullmatch, row[: len(devices)])) for row in rows.values()
    ):
        raise ValueError("not complete")
    return {(one, other): link for one in devices for other, link in zip(devices, rows[one], strict=False)}


TABLES = {}


def adds_to_its_first_table(text):
    TABLES.update(right(text))
    return TABLES


def keeps_its_first_table(text, kept=[]):  # noqa: B006
    kept.append(right(text))
    return kept[0]


def reads_gpus_only(text):
    return {pair: link for pair, link in right(text).items() if all("GPU" in name for name in pair)}


def leaves_out_the_diagonal(text):
    return {pair: link for pair, link in right(text).items() if link != "X"}


def reads_the_upper_half_only(text):
    devices, _ = table(text)
    return {
        pair: link for pair, link in right(text).items() if devices.index(pair[0]) <= devices.index(pair[1])
    }


def cuts_at_tabs(text):
    lines = [line.split("\t") for line in re.sub(r"\x1b\[\d*m", "", text).splitlines()]
    devices = [word for word in lines[0] if word.startswith(("GPU", "NIC", "mlx")) and " " not in word]
    rows = {words[0]: [word.strip() for word in words[1:]] for words in lines if words[0] in devices}
    if not devices:
        raise ValueError("no table")
    right(text)
    return {(one, other): link for one in rows for other, link in zip(devices, rows[one], strict=False)}


def stumbles_over_terminal_codes(text):
    devices, rows = table(text, codes="nothing")
    right(text)
    return {(one, other): link for one in rows for other, link in zip(devices, rows[one], strict=False)}


def is_one_column_off(text):
    whole = right(text)
    devices, _ = table(text)
    following = dict(zip(devices, devices[1:] + devices[:1], strict=True))
    return {(one, other): whole[one, following[other]] for one, other in whole}


def takes_the_legend_for_rows(text):
    whole = right(text)
    for line in text.splitlines():
        match = re.match(r"\s*(NIC\d+):\s+(\S+)", line)
        if match and (match[1], "GPU0") in whole:
            whole[match[1], "GPU0"] = match[2]
    return whole


def takes_affinities_for_devices(text):
    devices, rows = table(text, end="nothing")
    return right(text) | {
        (one, other): link for one in rows for other, link in zip(devices, rows[one], strict=False)
    }


def returns_an_empty_table(text):
    try:
        return right(text)
    except ValueError:
        return {}


def fills_up_torn_rows(text):
    devices, rows = table(text)
    if not all(KNOWN.fullmatch(row[0]) for row in rows.values()) or "GNS" in text:
        raise ValueError("no listing")
    return {
        (one, other): link
        for one in devices
        for other, link in zip(devices, rows.get(one, ["SYS"] * len(devices)), strict=False)
    }


def looks_for_the_last_row_only(text):
    devices, rows = table(text)
    short = [
        row
        for row in rows.values()
        if len(row) < len(devices) or not all(map(KNOWN.fullmatch, row[: len(devices)]))
    ]
    if devices[-1] not in rows or short:
        raise ValueError("not complete")
    return {
        (one, other): link for one, row in rows.items() for other, link in zip(devices, row, strict=False)
    }


def believes_every_entry(text):
    devices, rows = table(text)
    if len(rows) < len(devices) or any(len(row) < len(devices) for row in rows.values()):
        raise ValueError("not complete")
    return {(one, other): link for one in devices for other, link in zip(devices, rows[one], strict=False)}


def runs_into_an_index_error(text):
    try:
        return right(text)
    except ValueError:
        return text.splitlines()[1000]


def raises_without_a_word(text):
    try:
        return right(text)
    except ValueError:
        raise ValueError from None


def joins_the_names(text):
    return {f"{one}-{other}": link for (one, other), link in right(text).items()}


def makes_a_dictionary_for_each_row(text):
    rows = {}
    for (one, other), link in right(text).items():
        rows.setdefault(one, {})[other] = link
    return rows


def reads_one_digit(text):
    return {pair: link[:3] if link.startswith("NV") else link for pair, link in right(text).items()}


def returns_a_list(text):
    return list(right(text).items())


def returns_numbers_of_nvlinks(text):
    return {pair: int(link[2:]) if link.startswith("NV") else link for pair, link in right(text).items()}
