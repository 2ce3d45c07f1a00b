"""Results as text: a row for every case, nothing left out."""


def floor_seconds(row, facts):
    """The larger of operations at the fastest measured rate and compulsory bytes at the rate of a copy."""
    # The clock follows what runs, and a neighbour may have been there: the better of the two measurements.
    rate = max(facts["fma_gflops"], facts.get("fma_gflops_at_the_end", 0.0))
    if row["dtype"] == "bf16":
        rate = max(rate, facts["bf16_pairs_gflops"])
    operations = row["flops"] / rate / 1e9 if rate else 0.0
    return max(operations, row["bytes"] / facts["copy_gbs"] / 1e9)


def ratio(row):
    """Our speed in PyTorch's; None where one of them is missing."""
    ours, theirs = row.get("ours"), row.get("theirs")
    return theirs / ours if ours and theirs else None


def line(row, facts):
    ours, theirs = row.get("ours"), row.get("theirs")
    work, unit = (row["flops"], "GFLOP/s") if row["flops"] else (row["bytes"], "GB/s")
    rate = lambda seconds: f"{work / seconds / 1e9:.1f}" if seconds else "-"
    out = [row["name"], f"{ours * 1e3:.2f}" if ours else "-", f"{theirs * 1e3:.2f}" if theirs else "-", rate(ours), rate(theirs), unit]
    out.append(f"{ratio(row):.2f}" if ratio(row) else "-")
    out.append(f"{row['at_least']:.2f}" if row["at_least"] else "-")
    out.append(f"{theirs / floor_seconds(row, facts):.2f}" if theirs else "-")
    out.append(f"{floor_seconds(row, facts) / ours:.2f}" if ours else "-")
    out.append(f"{ours / row['positions'] * 1e9:.0f}" if ours and row["positions"] else "-")
    out.append(f"{row['extra_mib']:.0f}" if "extra_mib" in row else "-")
    return out + [row.get("error", "")[:60]]


HEAD = ["ours ms", "torch ms", "ours", "torch", "unit", "ratio", "target", "at most", "of floor", "ns/pos", "extra MiB", ""]


def text(data):
    facts = data["facts"]
    out = ["  ".join(f"{key}: {value}" for key, value in facts.items())]
    for group in dict.fromkeys(row["group"] for row in data["rows"]):
        rows = [row for row in data["rows"] if row["group"] == group]
        lines = [[group, *HEAD], *(line(row, facts) for row in rows)]
        widths = [max(len(cells[k]) for cells in lines) for k in range(len(lines[0]))]
        left = (0, 5, len(widths) - 1)
        pad = lambda cell, k: cell.ljust(widths[k]) if k in left else cell.rjust(widths[k])
        out += ["", *("  ".join(pad(cell, k) for k, cell in enumerate(cells)).rstrip() for cells in lines)]
        known = sorted((ratio(row), row["name"]) for row in rows if ratio(row))
        if known:
            met = sum(ratio(row) >= row["at_least"] for row in rows if ratio(row))
            out.append(f"worst {known[0][0]:.2f} ({known[0][1]}), best {known[-1][0]:.2f} ({known[-1][1]}); {met} of {len(known)} meet the target")
    return "\n".join(out)
