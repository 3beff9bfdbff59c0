"""Products with a large transposed matrix, which are made as transposes of others."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float32, float64, int32
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.spelling import spells
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse
from gradtape.transforms.turning import with_products_turned
from tests.kernels.test_render import by_kernels
from tests.op_table.running import node_by_node

ROWS, WIDE = 16, 512


def product(
    subscripts: str, left: tuple[int, ...], right: tuple[int, ...], dtype: DType = float32, use: str = "kernel"
) -> Graph:
    """A product that a kernel, another product, or nobody reads."""
    a, b = Value(aval(left, dtype)), Value(aval(right, dtype))
    made = emit("contract", a, b, subscripts=subscripts)
    if use == "result":
        return Graph([a, b], [made])
    if use == "product":
        return Graph([a, b], [emit("add", made, made), emit("contract", made, made, subscripts="ab,cb->ac")])
    other = Value(made.aval)
    return Graph([a, b, other], [emit("multiply", emit("maximum", other, emit("negative", other)), made)])


TURNED = {
    "ab,cb->ac": product("ab,cb->ac", (ROWS, WIDE), (WIDE, WIDE)),
    "other letters": product("ac,bc->ab", (ROWS, WIDE), (WIDE, WIDE), float64),
    "both transposed": product("ba,cb->ac", (WIDE, ROWS), (WIDE, WIDE)),
}
LEFT = {
    "in order": product("ab,bc->ac", (ROWS, WIDE), (WIDE, WIDE)),
    "turned already": product("ab,cb->ca", (ROWS, WIDE), (WIDE, WIDE)),
    "many rows": product("ab,cb->ac", (WIDE, WIDE), (WIDE, WIDE)),
    "small": product("ab,cb->ac", (ROWS, WIDE), (WIDE // 2, WIDE)),
    "integers": product("ab,cb->ac", (ROWS, WIDE), (WIDE, WIDE), int32),
    "a stack": product("nab,ncb->nac", (1, ROWS, WIDE), (1, WIDE, WIDE)),
    "a result": product("ab,cb->ac", (ROWS, WIDE), (WIDE, WIDE), use="result"),
    "read by a product": product("ab,cb->ac", (ROWS, WIDE), (WIDE, WIDE), use="product"),
}


@pytest.mark.parametrize("name", TURNED)
def test_the_product_is_turned_and_its_kernel_reads_it_transposed(name: str) -> None:
    graph = TURNED[name]
    fused = fuse(graph, spells)
    assert [n.step.name for n in fused.nodes] == ["contract", "fused"]
    assert fused.nodes[0].outputs[0].aval.dims == (WIDE, ROWS)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.aval.dims).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]
    (found,), (wanted,) = by_kernels(fused, arrays, 2), node_by_node(graph, arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_as_it_is(name: str) -> None:
    assert with_products_turned(LEFT[name]) is LEFT[name]
