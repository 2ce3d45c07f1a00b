"""Results as text: a row for every case, nothing left out."""


def floor_ms(row, facts):
    """The larger of operations at the measured rate of products and bytes at the measured rate of copies."""
    operations = row["flops"] / facts["mma_tflops"] / 1e9 if facts.get("mma_tflops") else 0
    traffic = row["bytes"] / facts["copy_tbs"] / 1e9 if facts.get("copy_tbs") else 0
    return max(operations, traffic)


def rate(row, ms):
    """TFLOP/s of products, TB/s of the others."""
    return (row["flops"] or row["bytes"]) / ms / 1e9


def ratio(row):
    """Our speed in the rival's; None where one of them is missing."""
    ours, rival = row.get("ours_ms"), row["rivals"].get(row["rival"])
    if not ours or not rival:
        return None
    return rate(row, ours) / rivals_rate(row, row["rival"])


def rivals_rate(row, name):
    """A copy moves what it moves, the others do the case's work."""
    ms = row["rivals"][name]
    return row["copied"] / ms / 1e9 if name == "copy" else rate(row, ms)


def text(data):
    facts, out = data["facts"], []
    out.append("  ".join(f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}" for key, value in facts.items()))
    for group in dict.fromkeys(row["group"] for row in data["rows"]):
        rows = [row for row in data["rows"] if row["group"] == group]
        out += ["", *table(group, rows, facts), *summary(rows)]
    return "\n".join(out)


def table(group, rows, facts):
    rivals = list(dict.fromkeys(name for row in rows for name in row["rivals"]))
    unit = "TFLOP/s" if rows[0]["flops"] else "TB/s"
    head = [f"{group}, {unit}", "ours", *rivals, "ratio", "floor ms", "of floor", "host us", "path"]
    lines = [head]
    for row in rows:
        ours, floor = row.get("ours_ms"), floor_ms(row, facts)
        digits = 0 if row["flops"] else 2
        line = [row["name"], f"{rate(row, ours):.{digits}f}" if ours else "-"]
        line += [f"{rivals_rate(row, name):.{digits}f}" if name in row["rivals"] else "-" for name in rivals]
        line.append(f"{ratio(row):.2f}" if ratio(row) else "-")
        line += [f"{floor:.3f}", f"{floor / ours:.2f}" if ours and floor else "-", f"{row['host_us']:.1f}" if "host_us" in row else "-"]
        line.append(row.get("error", "")[:60] if not ours else way(row["path"]))
        lines.append(line)
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    pad = lambda text, k: text.ljust(widths[k]) if k in (0, len(head) - 1) else text.rjust(widths[k])
    return ["  ".join(pad(text, k) for k, text in enumerate(line)).rstrip() for line in lines]


def way(path):
    bulk = f" tma {path['bulk_copied']}/{path['kernels']}" if path["bulk_copied"] else f" {path['kernels']} kernels"
    return path["arch"] + bulk + (f", {len(path['fallbacks'])} slower ways" if path["fallbacks"] else "")


def summary(rows):
    """The worst and the best ratio, and what misses the target."""
    measured = [(ratio(row), row) for row in rows if ratio(row)]
    out = []
    if measured:
        (low, worst), (high, best) = min(measured, key=lambda m: m[0]), max(measured, key=lambda m: m[0])
        out.append(f"worst {low:.2f} ({worst['name']}), best {high:.2f} ({best['name']}) of {best['rival']}")
        missed = [row["name"] for r, row in measured if r < row["at_least"]]
        target = f"at least {rows[0]['at_least']:.2f}"
        out.append(f"{target}: all {len(measured)} measured" if not missed else f"{target}: missed by {len(missed)}: {', '.join(missed)}")
    missing = [row["name"] for row in rows if row["rival"] and not ratio(row)]
    if missing:
        out.append(f"NOT MEASURED: {', '.join(missing)}")
    errors = [f"{row['name']}: {row['rivals_error']}" for row in rows if "rivals_error" in row]
    return out + [f"rival failed: {e}" for e in errors]
