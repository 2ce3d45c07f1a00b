"""PyTorch's calls on the same sizes, outputs preallocated where PyTorch lets one."""
import torch

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def attention(n, d, dtype, causal):
    q, k, v = (torch.randn(1, 8, n, d).to(TYPES[dtype]) for _ in range(3))
    # It has no form with a given output.
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def matmul(n, dtype):
    a, b = (torch.randn(n, n).to(TYPES[dtype]) for _ in range(2))
    c = torch.empty(n, n, dtype=TYPES[dtype])
    return lambda: torch.matmul(a, b, out=c)


def row(name, m, n, dtype):
    x, scale, shift = (torch.randn(*shape).to(TYPES[dtype]) for shape in ((m, n), (n,), (n,)))
    y, label = torch.empty(m, n, dtype=TYPES[dtype]), torch.randint(0, n, (m,))
    functions = torch.nn.functional
    return {
        "softmax": lambda: torch.softmax(x, -1, out=y),
        "rmsnorm": lambda: functions.rms_norm(x, (n,), scale, 1e-6),
        "layernorm": lambda: torch.native_layer_norm(x, (n,), scale, shift, 1e-5),
        "cross_entropy": lambda: functions.cross_entropy(x, label, reduction="none"),
    }[name]
