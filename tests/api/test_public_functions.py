"""Every public function is called by some test, and takes TensorFlow's arguments under TensorFlow's names."""

from __future__ import annotations

import inspect
import re
import types
from pathlib import Path

import pytest

import gradtape as tf
from tests.api.calls import function
from tests.api.test_values_and_gradients import TABLE

TESTS = Path(__file__).parents[1]
SPACES = [
    n
    for n in tf.__all__
    if isinstance(getattr(tf, n), types.ModuleType) and n not in ("keras", "errors", "dtypes", "autodiff", "version")
]


def public_functions() -> list[str]:
    """Dotted names under `tf`; one of those that name the same function."""
    found: dict[int, str] = {}
    for space in ("", *SPACES):
        module = getattr(tf, space) if space else tf
        own = [n for n, f in vars(module).items() if getattr(f, "__module__", "") == module.__name__ and n[0] != "_"]
        for name in getattr(module, "__all__", own):
            f = getattr(module, name)
            if inspect.isfunction(f):
                found.setdefault(id(f), f"{space}.{name}".lstrip("."))
    return sorted(found.values())


PUBLIC = public_functions()


def same_function(name: str) -> set[str]:
    """All public names of a function."""
    f = function(name)
    spaces = [("", tf), *((s, getattr(tf, s)) for s in SPACES)]
    return {f"{s}.{n}".lstrip(".") for s, m in spaces for n in vars(m) if getattr(m, n) is f}


def test_the_functions_are_found() -> None:
    assert len(PUBLIC) > 150
    assert {"add", "custom_gradient", "math.log", "nn.relu", "linalg.matvec", "random.normal"} <= set(PUBLIC)


@pytest.fixture(scope="module")
def texts() -> str:
    return "\n".join(p.read_text() for p in TESTS.rglob("*.py") if p != Path(__file__))


@pytest.mark.parametrize("name", PUBLIC)
def test_some_test_calls_it(name: str, texts: str) -> None:
    names = same_function(name)
    if names & {c.name for c in TABLE} or function(name).__module__ == "gradtape.api.declared":
        return  # functions made of declarations are called by the op table's suite
    last = {n.split(".")[-1] for n in names}
    last |= {n.removeprefix("assert_") for n in last}  # as the assertions' own tests call them
    called = [n for n in last if re.search(rf"\.{n}\(|[\"']([a-z_.]*\.)?{n}[\"']", texts)]
    assert called, f"`tf.{name}` stands in no table of tests/api, and no test calls it: add a line to a table"


# TensorFlow 2's parameters, in order, as far as functions have them here.
SIGNATURES = """
abs x name
add x y name
add_n inputs name
argmax input axis output_type name
argmin input axis output_type name
as_dtype type_value
boolean_mask tensor mask axis name
broadcast_to input shape name
cast x dtype name
clip_by_global_norm t_list clip_norm use_norm name
clip_by_norm t clip_norm axes name
clip_by_value t clip_value_min clip_value_max name
complex real imag name
concat values axis name
constant value dtype shape name
convert_to_tensor value dtype dtype_hint name
cumsum x axis exclusive reverse name
custom_gradient f
divide x y name
einsum equation inputs kwargs
ensure_shape x shape name
equal x y name
expand_dims input axis name
eye num_rows num_columns batch_shape dtype name
fill dims value name layout
gather params indices validate_indices axis batch_dims name
gather_nd params indices batch_dims name bad_indices_policy
grad_pass_through f
identity input name
linspace start stop num name axis
logical_not x name
logical_and x y name
matmul a b transpose_a transpose_b adjoint_a adjoint_b a_is_sparse b_is_sparse output_type grad_a grad_b name
maximum x y name
norm tensor ord axis keepdims name
one_hot indices depth on_value off_value axis dtype name
ones shape dtype name layout
ones_like input dtype name layout
pad tensor paddings mode constant_values name
pow x y name
range start limit delta dtype name
rank input name
reduce_all input_tensor axis keepdims name
reduce_logsumexp input_tensor axis keepdims name
reduce_max input_tensor axis keepdims name
reduce_mean input_tensor axis keepdims name
reduce_sum input_tensor axis keepdims name
repeat input repeats axis name
reshape tensor shape name
reverse tensor axis name
roll input shift axis name
round x name
scatter_nd indices updates shape bad_indices_policy name
shape input out_type name
size input out_type name
slice input_ begin size name
split value num_or_size_splits axis num name
squeeze input axis name
stack values axis name
stop_gradient input name
strided_slice input_ begin end strides begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask var name
tensor_scatter_nd_add tensor indices updates bad_indices_policy name
tensor_scatter_nd_update tensor indices updates name
tensordot a b axes name
tile input multiples name
transpose a perm conjugate name
unstack value num axis name
where condition x y name
zeros shape dtype name layout
zeros_like input dtype name layout
linalg.diag diagonal name k num_rows num_cols padding_value align
linalg.diag_part input name k padding_value align
linalg.set_diag input diagonal name k align
math.atan2 y x name
math.cumprod x axis exclusive reverse name
math.divide_no_nan x y name
math.imag input name
math.log x name
math.real input name
math.reduce_std input_tensor axis keepdims name
math.segment_sum data segment_ids name
math.squared_difference x y name
math.top_k input k sorted index_type name
math.unsorted_segment_sum data segment_ids num_segments name
nn.avg_pool2d input ksize strides padding data_format name
nn.batch_normalization x mean variance offset scale variance_epsilon name
nn.bias_add value bias data_format name
nn.conv2d input filters strides padding data_format dilations name
nn.dropout x rate noise_shape seed name
nn.elu features name
nn.embedding_lookup params ids max_norm name
nn.l2_loss t name
nn.l2_normalize x axis epsilon name dim
nn.leaky_relu features alpha name
nn.log_softmax logits axis name
nn.max_pool2d input ksize strides padding data_format name
nn.moments x axes shift keepdims name
nn.relu features name
nn.relu6 features name
nn.selu features name
nn.sigmoid x name
nn.sigmoid_cross_entropy_with_logits labels logits name
nn.silu features beta
nn.softmax logits axis name
nn.softmax_cross_entropy_with_logits labels logits axis name
nn.softplus features name
nn.softsign features name
nn.sparse_softmax_cross_entropy_with_logits labels logits name
nn.tanh x name
linalg.global_norm t_list name
linalg.matvec a b transpose_a adjoint_a a_is_sparse b_is_sparse
linalg.trace x name
random.normal shape mean stddev dtype seed name
random.set_seed seed
random.shuffle value seed name
random.truncated_normal shape mean stddev dtype seed name
random.uniform shape minval maxval dtype seed name
"""


@pytest.mark.parametrize("line", SIGNATURES.strip().splitlines())
def test_parameters_are_tensorflows(line: str) -> None:
    name, *wanted = line.split()
    assert list(inspect.signature(function(name)).parameters)[: len(wanted)] == wanted


DEFAULTS: dict[str, dict[str, object]] = {
    "cumsum": {"axis": 0, "exclusive": False, "reverse": False},
    "norm": {"ord": "euclidean", "axis": None, "keepdims": None},
    "linalg.diag": {"k": 0, "num_rows": -1, "num_cols": -1, "padding_value": 0, "align": "RIGHT_LEFT"},
    "shape": {"out_type": None},
    "scatter_nd": {"bad_indices_policy": ""},
    "one_hot": {"on_value": None, "off_value": None, "axis": None, "dtype": None},
    "pad": {"mode": "CONSTANT", "constant_values": 0},
    "range": {"limit": None, "delta": 1},
    "split": {"axis": 0},
    "zeros": {"dtype": tf.float32},
    "eye": {"dtype": tf.float32},
    "argmax": {"axis": None, "output_type": tf.int64},
    "nn.leaky_relu": {"alpha": 0.2},
    "nn.l2_normalize": {"epsilon": 1e-12},
    "nn.softmax_cross_entropy_with_logits": {"axis": -1},
    "random.normal": {"mean": 0.0, "stddev": 1.0, "dtype": tf.float32, "seed": None},
    "random.uniform": {"minval": 0, "maxval": None, "dtype": tf.float32},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_tensorflows(name: str) -> None:
    parameters = inspect.signature(function(name)).parameters
    assert {k: parameters[k].default for k in DEFAULTS[name]} == DEFAULTS[name]


def test_names_that_mean_the_same_are_the_same() -> None:
    for a, b in (
        ("truediv", "divide"),
        ("math.truediv", "divide"),
        ("math.mod", "math.floormod"),
        ("nn.swish", "nn.silu"),
        ("nn.sigmoid", "math.sigmoid"),
        ("nn.tanh", "tanh"),
        ("linalg.einsum", "einsum"),
        ("dtypes.cast", "cast"),
        ("dtypes.complex", "complex"),
    ):
        assert function(a) is function(b), (a, b)
    assert (tf.half, tf.double, tf.dtypes.bool) == (tf.float16, tf.float64, tf.bool)
    assert tf.newaxis is None
