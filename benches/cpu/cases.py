"""What is measured: every case with its program, sizes, operations, compulsory bytes and target."""
from dataclasses import dataclass, field
from pathlib import Path

CASCADES = Path(__file__).resolve().parent.parent.parent / "cascades"
BYTES = {"f32": 4, "bf16": 2}
try:
    AVX512 = " avx512f " in Path("/proc/cpuinfo").read_text()
except OSError:
    AVX512 = False


@dataclass
class Case:
    """One measurement."""

    group: str
    name: str
    program: str
    """A file of `cascades/`, in which every floating-point type becomes `dtype`."""
    dtype: str
    sizes: dict
    flops: float
    bytes: float
    """Every input read once, every output written once."""
    rival: tuple = ()
    """Which function of `rivals` makes PyTorch's call, and its arguments. Empty: none."""
    at_least: float = 0.0
    """The target: this many times PyTorch's speed."""
    positions: int = 0
    """For recurrences: positions of the sequence, by which time is divided."""
    params: dict = field(default_factory=dict)

    def text(self):
        """The program in the case's number type."""
        source = (CASCADES / f"{self.program}.ein").read_text()
        other = {"f32": "bf16", "bf16": "f32"}[self.dtype]
        return source.replace(f": {other}", f": {self.dtype}")


def attention(quick):
    for dtype in ("f32", "bf16"):
        for d in (64, 128):
            for n in (1024, 4096) if quick else (1024, 4096, 16384):
                for causal in (False, True):
                    yield Case(
                        "attention", f"{dtype} D={d} N={n}{' causal' if causal else ''}",
                        "attention_causal" if causal else "attention", dtype, {"B": 1, "H": 8, "M": n, "N": n, "D": d, "E": d},
                        4.0 * 8 * n * n * d * (0.5 if causal else 1), 4.0 * 8 * n * d * BYTES[dtype],
                        ("attention", n, d, dtype, causal), 1.8 if dtype == "f32" else 2.5,
                    )


def variants(quick):
    n, d = 2048 if quick else 4096, 64
    # Scores that a mask leaves, or the one of two products that there is.
    part = {
        "attention_causal": 0.5, "attention_alibi": 0.5, "attention_window": 7 / 32, "attention_forgetting": 0.5,
        "attention_saturated": 0.5,
    }
    # Of those that have not all of the plain one's.
    ranks = {"attention_latent": "BHMN", "attention_forgetting": "HDE", "attention_saturated": "HMNE"}
    for dtype in ("f32", "bf16"):
        for name, more in {
            "attention": {}, "attention_bias": {}, "attention_softcap": {}, "attention_padding": {}, "attention_off_by_one": {},
            "attention_l2": {}, "attention_sink": {}, "attention_gqa": {"J": 2}, "attention_causal": {}, "attention_alibi": {},
            "attention_window": {"W": n // 4}, "attention_document": {}, "attention_qk_rmsnorm": {}, "attention_sigmoid": {},
            "attention_latent": {"C": d}, "attention_forgetting": {"T": n}, "attention_saturated": {},
        }.items():
            plain = {"B": 1, "H": 8, "M": n, "N": n, "D": d, "E": d}
            sizes = {rank: plain[rank] for rank in ranks.get(name, plain)} | more
            flops = 4.0 * 8 * n * n * d * part.get(name, 1)
            bias = 8.0 * n * n * BYTES[dtype] if name in ("attention_bias", "attention_saturated") else 0.0
            yield Case("variants", f"{name} {dtype} N={n}", name, dtype, sizes, flops, 4.0 * 8 * n * d * BYTES[dtype] + bias)


def matmul(quick):
    for dtype in ("f32", "bf16"):
        for n in (512, 1024, 2048) if quick else (512, 1024, 2048, 4096):
            yield Case(
                "matmul", f"{dtype} {n}", "matmul", dtype, {"M": n, "N": n, "K": n}, 2.0 * n**3, 3.0 * n * n * BYTES[dtype],
                ("matmul", n, dtype), 0.9 if dtype == "bf16" else 1.8 if AVX512 else 0.95,
            )


def rows(quick):
    for dtype in ("f32", "bf16"):
        for m, n in [(4096, 4096)] if quick else [(4096, 4096), (512, 131072)]:
            for name in ("softmax", "rmsnorm", "layernorm", "cross_entropy"):
                columns = {"softmax": "N", "rmsnorm": "D", "layernorm": "D", "cross_entropy": "V"}[name]
                lines = "T" if name == "cross_entropy" else "M"
                traffic = float(BYTES[dtype]) * m * n * (1 if name == "cross_entropy" else 2)
                yield Case(
                    "rows", f"{dtype} {name} {m}x{n}", name, dtype, {lines: m, columns: n}, 0.0, traffic,
                    ("row", name, m, n, dtype), 1.2,
                )


def recurrences(quick):
    for n in (4096, 16384) if quick else (4096, 16384, 65536):
        sizes = {"B": 1, "H": 8, "M": n, "N": n, "D": 64, "E": 64}
        yield Case("recurrences", f"retention N={n}", "retention", "f32", sizes, 0.0, 4.0 * 8 * n * 64 * 4, positions=n)
    for n in (4096, 16384) if quick else (4096, 16384, 65536):
        sizes = {"H": 8, "T": n, "P": 64, "N": 64}
        yield Case("recurrences", f"mamba2 T={n}", "mamba2", "f32", sizes, 0.0, (2.0 * 8 * 64 + 8 + 128) * n * 4, positions=n)


def start(_):
    """From text to first result: the whole process, its start and the making of random inputs included."""
    for name in ("attention", "attention_causal", "attention_window"):
        sizes = {"B": 1, "H": 8, "M": 256, "N": 256, "D": 64, "E": 64} | ({"W": 64} if name == "attention_window" else {})
        yield Case("start", f"{name} f32 N=256", name, "f32", sizes, 0.0, 4.0 * 8 * 256 * 64 * 4)


GROUPS = {"attention": attention, "variants": variants, "matmul": matmul, "rows": rows, "recurrences": recurrences, "start": start}
