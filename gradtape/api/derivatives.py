"""Derivatives of functions: `jvp`, `vjp`, `hessian` and what is made of them. Floor: api."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree

from gradtape.api.creation import convert_to_tensor, zeros_like
from gradtape.api.elementwise import identity, sqrt
from gradtape.api.mapping import mapped, vectorized_map
from gradtape.api.reductions import reduce_sum
from gradtape.forward import ForwardAccumulator
from gradtape.ir.errors import InvalidArgumentError
from gradtape.recording import UnconnectedGradients, flatten
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.tape import GradientTape
from gradtape.transforms.rows.products import row_squares

ZERO = UnconnectedGradients.ZERO


def _tensors(structure: Any) -> Any:
    """A structure with tensors (or variables) for leaves: each argument is one of its own, also where one tensor is
    given twice, or is what the function closes over."""
    leaves, spec = flatten(structure)
    made = [x if isinstance(x, Variable) else identity(convert_to_tensor(x)) for x in leaves]
    return made[0] if spec is None else optree.tree_unflatten(spec, made)


def _arguments(primals: Any, vectors: Any, who: str) -> list[Any]:
    """The arguments of a function, given as a list beside a list of vectors."""
    for name, given in (("primals", primals), ("vectors", vectors)):
        if not isinstance(given, list | tuple):
            raise TypeError(
                f"`{who}` takes a list of {name}, one per argument of the function, got {type(given).__name__}. Write "
                f"`{who}(fn, [x], [v])` for a function of one argument."
            )
    if len(primals) != len(vectors):
        raise ValueError(f"`{who}` takes a tangent per argument, got {len(vectors)} for {len(primals)}.")
    return [_tensors(p) for p in primals]


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of fn and its derivative along a direction, by forward mode.

    Args:
      fn: a function of tensors.
      primals: its arguments, a list.
      tangents: a vector per argument, of its shape and dtype.

    Returns:
      `(fn(*primals), J @ tangents)`, each in the structure that fn returns; zeros where nothing is connected.

    Raises:
      ValueError: tangents that do not fit.

    >>> import gradtape as tf
    >>> value, slope = tf.jvp(lambda x: x * x, [tf.constant(3.0)], [tf.constant(1.0)])
    >>> float(value), float(slope)
    (9.0, 6.0)
    """
    arguments = _arguments(primals, tangents, "jvp")
    with ForwardAccumulator(arguments, list(tangents)) as accumulator:
        value = fn(*arguments)
    return value, accumulator.jvp(value, ZERO)


def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The value of fn and a function that pulls cotangents back.

    Args:
      fn: a function of tensors.
      primals: its arguments.

    Returns:
      `(fn(*primals), pullback)`; `pullback(cotangents)`, for one cotangent per result in the structure of the value,
      gives one gradient per argument, as a tuple.

    >>> import gradtape as tf
    >>> value, pullback = tf.vjp(lambda x, y: x * y, tf.constant(3.0), tf.constant(2.0))
    >>> [float(g) for g in pullback(tf.constant(1.0))]
    [2.0, 3.0]
    """
    arguments = tuple(_tensors(p) for p in primals)
    tape = GradientTape(persistent=True)
    with tape:
        tape.watch(list(arguments))
        value = fn(*arguments)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        result: tuple[Any, ...] = tape.gradient(value, arguments, cotangents, ZERO)
        return result

    return value, pullback


def linearize(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of fn and the linear function that it is near these arguments; fn itself runs once.

    Returns:
      `(fn(*primals), push)`; `push(*tangents)` gives the derivative along them.

    >>> import gradtape as tf
    >>> value, push = tf.linearize(lambda x: x * x, tf.constant(3.0))
    >>> float(push(tf.constant(1.0))), float(push(tf.constant(2.0)))
    (6.0, 12.0)
    """
    arguments = [_tensors(p) for p in primals]
    zeros = [_zeros(p) for p in arguments]
    accumulator = ForwardAccumulator(arguments, zeros)
    with accumulator:
        value = fn(*arguments)

    def push(*tangents: Any) -> Any:
        return accumulator.with_tangents(list(tangents)).jvp(value, ZERO)

    return value, push


def _zeros(structure: Any) -> Any:
    leaves, spec = flatten(structure)
    made = [zeros_like(x) for x in leaves]
    return made[0] if spec is None else optree.tree_unflatten(spec, made)


def hvp(fn: Callable[..., Any], primals: Sequence[Any], vectors: Sequence[Any]) -> tuple[Any, Any]:
    """The gradient of a scalar function and the product of its Hessian with a vector, forward over reverse.

    Args:
      fn: a function of tensors to a scalar.
      primals: its arguments, a list.
      vectors: a vector per argument.

    Returns:
      `(gradients, products)`, one per argument each.

    >>> import gradtape as tf
    >>> gradients, products = tf.hvp(lambda x: x * x * x, [tf.constant(2.0)], [tf.constant(1.0)])
    >>> float(gradients[0]), float(products[0])
    (12.0, 12.0)
    """
    arguments = _arguments(primals, vectors, "hvp")
    with ForwardAccumulator(arguments, list(vectors)) as accumulator:
        with GradientTape() as tape:
            tape.watch(arguments)
            value = _scalar(fn(*arguments), "hvp")
        gradients = tape.gradient(value, arguments, unconnected_gradients=ZERO)
    return gradients, accumulator.jvp(gradients, ZERO)


def _scalar(value: Any, who: str) -> Tensor:
    t = convert_to_tensor(value)
    if t.shape.rank:
        raise InvalidArgumentError(f"`{who}` wants a function with a scalar result, got shape {t.shape}. Reduce it.")
    return t


def hessian(fn: Callable[..., Any], args: Any) -> Any:
    """The second derivatives of a scalar function.

    Args:
      fn: a function to a scalar.
      args: its argument, or a list or tuple of several.

    Returns:
      For one argument a tensor of shape `arg.shape + arg.shape`; for several, blocks [i][j].

    >>> import gradtape as tf
    >>> print(tf.hessian(lambda x: x[0] * x[0] * x[1], tf.constant([1.0, 2.0])).numpy())
    [[4. 2.]
     [2. 0.]]
    """
    arguments = _tensors(args)
    several = isinstance(arguments, list | tuple)
    with GradientTape() as tape:
        tape.watch(arguments)
        value = _scalar(fn(*arguments) if several else fn(arguments), "hessian")
    return tape.hessian(value, arguments)


def gauss_newton_product(
    fn: Callable[..., Any], loss: Callable[[Any], Any], primals: Sequence[Any], vectors: Sequence[Any]
) -> tuple[Any, ...]:
    """J' H J @ vectors: J is the Jacobian of fn, H the Hessian of the loss in fn's result.

    Args:
      fn: a function of tensors to a tensor.
      loss: from that tensor to a scalar.
      primals: the arguments of fn.
      vectors: a vector per argument.

    Returns:
      One product per argument.

    >>> import gradtape as tf
    >>> (p,) = tf.gauss_newton_product(lambda x: 3.0 * x, lambda y: y * y, [tf.constant(1.0)], [tf.constant(1.0)])
    >>> float(p)
    18.0

    Source: Schraudolph, "Fast curvature matrix-vector products for second-order gradient descent" (2002).
    """
    _arguments(primals, vectors, "gauss_newton_product")
    value, pushed = jvp(fn, primals, vectors)
    _, (curved,) = hvp(loss, [value], [pushed])
    _, pullback = vjp(fn, *primals)
    return pullback(curved)


def per_example_gradients(loss: Callable[..., Any], parameters: Any, inputs: Any) -> Any:
    """The gradient of each example's loss with respect to parameters, for all examples at once.

    Args:
      loss: takes one example, in the structure of `inputs`, and returns a scalar; it reads the parameters.
      parameters: a variable or watched tensor, or a structure of them.
      inputs: a tensor of shape (batch, ...), or a structure of them.

    Returns:
      In the structure of `parameters`: tensors of shape (batch, parameter's shape).

    >>> import gradtape as tf
    >>> w = tf.Variable(2.0)
    >>> print(tf.per_example_gradients(lambda x: x * w * w, w, tf.constant([1.0, 3.0])).numpy())
    [ 4. 12.]
    """

    return vectorized_map(_gradient_of_one(loss, parameters), inputs)


def per_example_gradient_norms(loss: Callable[..., Any], parameters: Any, inputs: Any) -> Any:
    """The Euclidean norm of each example's gradient, as clipping for each example wants it. A gradient that is an
    outer product, such as a dense layer's by its kernel, is never written out: its norm is its factors' norms'
    product.

    Args:
      loss, parameters, inputs: as for `per_example_gradients`.

    Returns:
      In the structure of `parameters`: tensors of shape (batch,).

    >>> import gradtape as tf
    >>> w = tf.Variable([[1.0], [2.0]])
    >>> rows = tf.constant([[3.0, 4.0], [0.0, 1.0]])
    >>> print(tf.per_example_gradient_norms(lambda x: tf.reduce_sum(tf.linalg.matvec(w, x, True)), w, rows).numpy())
    [5. 1.]
    """
    squares = mapped(_gradient_of_one(loss, parameters), inputs, row_squares)
    return optree.tree_map(sqrt, squares)


def _gradient_of_one(loss: Callable[..., Any], parameters: Any) -> Callable[[Any], Any]:
    def one(example: Any) -> Any:
        with GradientTape() as tape:
            tape.watch(parameters)
            value = loss(example)
        return tape.gradient(value, parameters, unconnected_gradients=ZERO)

    return one


def laplacian(fn: Callable[[Any], Any], x: Any) -> Tensor:
    """The sum of the second derivatives of a scalar function by each element of x.

    >>> import gradtape as tf
    >>> float(tf.laplacian(lambda x: tf.reduce_sum(x * x * x), tf.constant([1.0, 2.0])))
    18.0
    """
    at = _tensors(x)
    with GradientTape() as outer:
        outer.watch(at)
        with GradientTape() as inner:
            inner.watch(at)
            value = _scalar(fn(at), "laplacian")
        slope = inner.gradient(value, at, unconnected_gradients=ZERO)
    return _trace(outer, slope, at)


def divergence(fn: Callable[[Any], Any], x: Any) -> Tensor:
    """The trace of the Jacobian of a function whose result has the shape of x.

    >>> import gradtape as tf
    >>> float(tf.divergence(lambda x: x * x, tf.constant([1.0, 2.0])))
    6.0
    """
    at = _tensors(x)
    with GradientTape() as tape:
        tape.watch(at)
        value = convert_to_tensor(fn(at))
    if value.shape != at.shape:
        raise InvalidArgumentError(
            f"`divergence` wants a result of the argument's shape {at.shape}, got {value.shape}."
        )
    return _trace(tape, value, at)


def _trace(tape: GradientTape, target: Any, source: Any) -> Tensor:
    found = tape.jacobian(target, source, structured=True)
    if found is None:
        return zeros_like(reduce_sum(convert_to_tensor(source)))
    return reduce_sum(found.diagonal())
