"""Three uses of derivatives of derivatives, with pictures of the matrices in out/.

python examples/jacobians.py            # all three
python examples/jacobians.py --text     # pictures as text in the terminal, no files

1. A layer that is trained to change little when its input does: the gradient of the size of a gradient.
2. One step of Newton's method for a layer's weights, with the full Hessian.
3. Jacobians of each example of a batch, and what batch normalisation does to them.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradtape as tf

OUT = Path(__file__).resolve().parents[1] / "out"


def calm_layer(steps: int = 30) -> list[float]:
    """How large the input gradient of a layer is, step by step, while its weights are moved to make it smaller."""
    x = tf.random.normal([7, 5])
    layer = tf.keras.layers.Dense(10, activation=tf.nn.tanh)
    layer.build(x.shape)
    sizes = []
    for _ in range(steps):
        with tf.GradientTape() as by_weights:
            with tf.GradientTape(watch_accessed_variables=False) as by_input:
                by_input.watch(x)
                out = tf.reduce_sum(layer(x) ** 2)
            size = tf.norm(by_input.gradient(out, x))
        sizes.append(float(size))
        for w, g in zip(layer.trainable_variables, by_weights.gradient(size, layer.trainable_variables), strict=True):
            w.assign_sub(0.02 * g)
    return sizes


def newton_step() -> tuple[Any, float, float]:
    """The Hessian of a mean square by a layer's kernel, and the loss before and after a damped Newton step."""
    x = tf.random.normal([7, 5])
    first, second = (tf.keras.layers.Dense(n, activation=tf.nn.relu) for n in (8, 6))

    def loss() -> Any:
        return tf.reduce_mean(second(first(x)) ** 2)

    with tf.GradientTape(persistent=True) as tape:
        before = loss()
    kernel = first.kernel
    flat = tape.hessian(before, kernel, flat=True)
    gradient = tf.reshape(tape.gradient(before, kernel), [-1, 1])
    step = tf.linalg.solve(flat.matrix + 1e-3 * tf.eye(gradient.shape[0]), gradient)
    kernel.assign_sub(flat.unflatten(tf.reshape(step, [-1])))
    return flat.matrix, float(before), float(loss())


def per_example(normalised: bool) -> tuple[Any, Any, bool]:
    """The whole Jacobian of a small network over a batch, of each example, and whether examples are independent."""
    x = tf.random.normal([7, 5])
    layers: list[Any] = [tf.keras.layers.Dense(8, activation=tf.nn.elu)]
    if normalised:
        layers.append(tf.keras.layers.BatchNormalization())
    layers.append(tf.keras.layers.Dense(6, activation=tf.nn.elu))
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(x)
        y = x
        for layer in layers:
            y = layer(y, training=True) if isinstance(layer, tf.keras.layers.BatchNormalization) else layer(y)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", tf.BatchDependenceWarning)
        each = tape.batch_jacobian(y, x)
    return tape.jacobian(y, x), each, not told


def shown(name: str, draw: Any, value: Any, text: bool) -> None:
    """A picture as text, or in a file."""
    if text:
        print(draw(value, text=True))
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 5))
    draw(value, ax=ax)
    ax.set_title(name.replace("_", " "))
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f"{name}.png", dpi=120, bbox_inches="tight")
    plt.close(figure)
    print(f"out/{name}.png")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", action="store_true", help="pictures as text, no files")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    tf.random.set_seed(options.seed)

    sizes = calm_layer()
    print(f"input gradient: {sizes[0]:.3f} before, {sizes[-1]:.3f} after {len(sizes)} steps")

    matrix, before, after = newton_step()
    print(f"mean square: {before:.5f} before, {after:.5f} after one Newton step")
    shown("hessian", tf.plot.hessian, matrix, options.text)

    for normalised in (False, True):
        whole, each, independent = per_example(normalised)
        error = float(tf.reduce_max(tf.abs(each - tf.einsum("bobi->boi", whole))))
        how = "with" if normalised else "without"
        print(f"{how} batch normalisation: examples independent: {independent}; batch Jacobian off by {error:.1e}")
        shown(f"jacobian_{how}_batch_norm", tf.plot.blocks, whole, options.text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
