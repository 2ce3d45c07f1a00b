"""What a program says about itself, in a terminal and in a notebook."""

from __future__ import annotations

import inspect
import xml.etree.ElementTree

import einloom

A = einloom.library.attention
SIZES = dict(B=1, H=8, M=4096, N=4096, D=64, E=64)


def test_passes_by_rank_and_tensor():
    n = A.passes["N"]
    assert (n.written, n.derived) == (3, 1)
    assert (n.tensors["K"].written, n.tensors["K"].derived, n.tensors["V"].written) == (3, 1, 1)
    assert n.tensors["K"].written_by == (("S", "P.max"), ("P", "O.sum"), ("O",))
    assert set(A.passes) == {"B", "H", "M", "D", "N", "E"}
    assert repr(A.passes).splitlines()[0].split() == ["rank", "tensor", "written", "derived", "footprint"]


def test_steps_with_their_reasons():
    assert [s.rule for s in A.steps] == ["defer", "separate", "defer", "separate"]
    assert A.steps[0].why == "1 / sqrt(D) does not carry d"
    assert "1 defer S over D" in repr(A.steps)
    assert A.refusals[0].rule == "reassociate" and A.refusals[0].line > 0


def test_streams_merge_and_finish():
    over_n = next(s for s in A.streams if s.over == ("n",))
    assert over_n.states == ("P.max", "O.sum.acc", "O.acc")
    assert "exp(a.P.max - P.max)" in over_n.merge
    assert "stream over n" in A.explain()


def test_a_plan_against_its_bound():
    plan = A.plan(machine="cpu-generic", **SIZES)
    (kernel,) = plan.kernels
    assert plan.machine == "cpu-generic" and plan.sizes["M"] == 4096
    assert kernel.levels[0].bytes == kernel.levels[0].bound_bytes == plan.compulsory_bytes == 16 << 20
    assert kernel.levels[0].ratio == 1.0
    assert "16.0 MiB" in repr(plan) and "predicted" in repr(plan)
    assert kernel.group["m"] > 1 and kernel.stream["n"] > 1


def test_a_plan_for_a_gpu_that_is_not_here():
    plan = A.plan(machine="h200", **SIZES)
    assert plan.machine == "h200" and 0 < plan.seconds < 1e-3
    wider = A.plan(machine="h200", dtypes={"Q": "f32"}, **SIZES)
    assert wider.compulsory_bytes == 2 * plan.compulsory_bytes


def test_sources():
    pseudo = A.source("pseudo", machine="cpu-generic", **SIZES)
    assert pseudo.startswith("program attention") and "stream n by" in pseudo
    cuda = A.source("cuda", **SIZES)
    assert "__global__" in cuda and "wgmma" in cuda
    older = A.source("cuda", machine="a100", **SIZES)
    assert "__global__" in older and "wgmma.mma_async" not in older.split("__global__", 1)[1]


def test_repr_tells_passes_and_rules():
    text = repr(A)
    assert text.startswith("<einloom.Cascade attention(Q, K, V) -> O>")
    assert "passes over N: K 3 -> 1, V 1 -> 1" in text
    assert "4 steps: defer, separate" in text


def _parsed(html: str) -> xml.etree.ElementTree.Element:
    return xml.etree.ElementTree.fromstring(html.replace(" open>", ' open="">'))


def test_the_notebook_report_is_well_formed_and_complete():
    page = _parsed(A._repr_html_())
    said = " ".join(page.itertext())
    for part in ("Passes over memory", "4 steps", "Refused", "1 / sqrt(D) does not carry d", "cascade attention"):
        assert part in said


def test_the_notebook_plan_has_a_roofline():
    plan = A.plan(machine="h200", **SIZES)
    page = _parsed(plan._repr_html_())
    svg = page.find(".//svg")
    assert svg is not None and len(svg.findall("circle")) == 2 * len(plan.kernels)
    assert {"device memory", "L2", "shared memory"} <= set(" ".join(svg.itertext()).replace("  ", " ").split("operations")[0].split("\n")) or "device memory" in " ".join(svg.itertext())


def test_text_from_a_program_is_escaped():
    program = einloom.compile("cascade c\ninput X[m]: f32\noutput Y: f32\nY[m] = where(X[m] < 1, X[m], 1)  # <b>&\n")
    assert "<b>&" not in program._repr_html_()
    _parsed(program._repr_html_())


def test_the_report_shows_the_plan_of_the_last_call():
    import numpy as np

    program = einloom.compile(einloom.library.text("softmax"))
    assert program.last_plan() is None
    program(np.ones((6, 7), np.float32))
    assert program.last_plan().sizes == {"M": 6, "N": 7}
    assert "Plan of the last call" in program._repr_html_()


def test_editors_learn_what_a_call_takes():
    program = einloom.compile("input X[m,n]: f32, g[n]: f32\nparam eps = 1e-5\nparam scale\noutput Y: f32\n"
                              "Y[m,n] = scale * X[m,n] / sqrt(mean(n) X[m,n]^2 + eps) * g[n]\n")
    assert str(inspect.signature(program)) == "(X, g, *, eps=1e-05, scale, out=None, **sizes)"
    assert {"from_torch", "torch", "compile"} <= set(dir(einloom))
