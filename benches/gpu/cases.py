"""What is measured: every case with its program, sizes, operations, compulsory bytes, rivals and target."""
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
CASCADES = HERE.parent.parent / "cascades"

TOKENS = 16384  # batch times sequence length
HIDDEN = 2048  # heads times head dimension


@dataclass
class Case:
    """One measurement."""

    group: str
    name: str
    program: Path
    sizes: dict
    flops: float
    bytes: float
    """Every input read once, every output written once."""
    make: tuple
    """Which function of `peers` makes the rivals' calls, and its arguments."""
    rival: str = ""
    """Whom the target is about."""
    at_least: float = 0.0
    """The target: this many times the rival's speed."""
    copied: float = 0.0
    """Bytes that the rival `copy` moves."""
    params: dict = field(default_factory=dict)
    arch: str | None = None


def bf16(*shape):
    return 2 * prod(shape)


def matmul():
    for n in (2048, 4096, 8192):
        for way in ("nn", "nt", "tn", "tt"):
            sizes = {"M": n, "N": n, "K": n}
            program = PROGRAMS / f"matmul_{way}.ein"
            yield Case("matmul", f"{n} {way}", program, sizes, 2 * n**3, 3 * bf16(n, n), ("matmul", n, way), "cublas", 0.95)


def attention_case(group, d, s, causal, rivals, at_least, arch=None):
    batch, heads = TOKENS // s, HIDDEN // d
    sizes = {"B": batch, "H": heads, "M": s, "N": s, "D": d, "E": d}
    flops = 4 * batch * heads * s * s * d * (0.5 if causal else 1)
    program = CASCADES / ("attention_causal.ein" if causal else "attention.ein")
    name = f"d{d} S{s // 1024}k {'causal' if causal else 'full'}"
    make = ("attention", batch, heads, s, d, causal, rivals)
    return Case(group, name, program, sizes, flops, 4 * bf16(batch, heads, s, d), make, rivals[0], at_least, arch=arch)


def attention():
    for d in (64, 128, 256):
        for causal in (False, True):
            for s in (1024, 4096, 16384):
                yield attention_case("attention", d, s, causal, ("fa3", "cudnn", "fa2"), 0.85)


def sm80():
    for causal in (False, True):
        for s in (4096, 16384):
            yield attention_case("sm80", 128, s, causal, ("fa2",), 1.0, arch="sm_80")


def rows():
    elements = 1 << 27
    for what in ("softmax", "rmsnorm", "cross_entropy"):
        for n in (1 << k for k in range(10, 16)):
            m = elements // n
            moved = {
                "softmax": 2 * bf16(m, n),
                "rmsnorm": 2 * bf16(m, n) + bf16(n),
                "cross_entropy": bf16(m, n) + 8 * m,
            }[what]
            make = ("rows", what, m, n)
            sizes = {"M": m, "N": n}
            name = f"{what} {n}"
            yield Case("rows", name, PROGRAMS / f"{what}.ein", sizes, 0, moved, make, "copy", 0.85, 2 * bf16(m, n))


def variants():
    """Other texts by the same road: 4 sequences of 4096, 16 heads of 128."""
    batch, heads, s, d, window, groups = 4, 16, 4096, 128, 1024, 4
    sizes = {"B": batch, "H": heads, "M": s, "N": s, "D": d, "E": d}
    tensors = 4 * bf16(batch, heads, s, d)
    full = 4 * batch * heads * d * s * s
    seen = sum(min(q + 1, window) for q in range(s))
    for what, program, flops, moved, more in (
        ("softcap", "attention_softcap", full, tensors, {}),
        ("alibi", "attention_alibi", full / 2, tensors, {}),
        ("bias", "attention_bias", full, tensors + bf16(heads, s, s), {}),
        ("window", "attention_window", 4 * batch * heads * d * seen, tensors, {"W": window}),
        ("gqa", "attention_gqa", full, 2 * (1 + 1 / groups) * bf16(batch, heads, s, d), {"J": heads // groups}),
        ("l2", "attention_l2", full, tensors, {}),
    ):
        path = CASCADES / f"{program}.ein"
        make = ("variant", what, batch, heads, s, d, window, heads // groups)
        yield Case("variants", what, path, sizes | more, flops, moved, make)


def recurrences():
    """Causal sums of which a state is all that the past leaves: linear in the number of positions."""
    for what, program, batch, heads, t, d in (
        ("linear attention", PROGRAMS / "linear_attention.ein", 2, 16, 8192, 64),
        ("linear attention", PROGRAMS / "linear_attention.ein", 4, 4, 4096, 128),
        ("linear attention", PROGRAMS / "linear_attention.ein", 1, 4, 65536, 64),
        ("retention", CASCADES / "retention.ein", 2, 16, 8192, 64),
        ("retention", CASCADES / "retention.ein", 1, 8, 32768, 128),
    ):
        sizes = {"B": batch, "H": heads, "M": t, "N": t, "D": d, "E": d}
        name = f"{what} {batch}x{heads} S{t // 1024}k d{d}"
        make = ("recurrence", what, batch, heads, t, d, d)
        yield Case("recurrences", name, program, sizes, 4 * batch * heads * t * d * d, 4 * bf16(batch, heads, t, d), make, "fla")
    for heads, t, p, n in ((16, 2048, 64, 128), (64, 4096, 64, 128), (24, 32768, 64, 64)):
        moved = 2 * bf16(heads, t, p) + 2 * bf16(t, n) + 4 * heads * t
        make = ("recurrence", "mamba2", 1, heads, t, n, p)
        sizes = {"H": heads, "T": t, "P": p, "N": n}
        name = f"mamba2 {heads} S{t // 1024}k {p}x{n}"
        yield Case("recurrences", name, PROGRAMS / "mamba2.ein", sizes, 4 * heads * t * p * n, moved, make, "fla")


def huge():
    """Tensors of more than 2³¹ elements and 2³² bytes, and rows that begin at odd elements: for check.py."""
    m, n = 65539, 32771
    yield Case("huge", "cross_entropy", PROGRAMS / "cross_entropy.ein", {"M": m, "N": n}, 0, bf16(m, n) + 8 * m, ("rows", "cross_entropy", m, n))
    m, n = 65539, 32776
    yield Case("huge", "softmax", PROGRAMS / "softmax.ein", {"M": m, "N": n}, 0, 2 * bf16(m, n), ("rows", "softmax", m, n))
    heads, m, n, d = 17, 64, 1 << 20, 128
    sizes = {"B": 1, "H": heads, "M": m, "N": n, "D": d, "E": d}
    moved = 2 * bf16(heads, m, d) + 2 * bf16(heads, n, d)
    yield Case("huge", "attention", CASCADES / "attention.ein", sizes, 4 * heads * m * n * d, moved, ("keys", heads, m, n, d))


GROUPS = {"matmul": matmul, "attention": attention, "rows": rows, "sm80": sm80, "variants": variants, "recurrences": recurrences, "huge": huge}
USUAL = ",".join(group for group in GROUPS if group != "huge")
