"""What layers that slide windows over images share: their arguments, and the shapes of what they make. Floor: keras."""

from __future__ import annotations

from typing import Any

from gradtape.keras.layers.inputs import Dims, InputSpec, is_integer

FORMATS = {"channels_last": "NHWC", "channels_first": "NCHW"}
IMAGES = InputSpec(min_ndim=4, max_ndim=4)

Pair = tuple[int, int]


def pair(value: Any, name: str) -> Pair:
    """Two positive integers, from one for both or from two.

    Raises:
      ValueError: anything else.
    """
    parts = list(value) if isinstance(value, list | tuple) else [value, value]
    if len(parts) != 2 or not all(is_integer(v) for v in parts):
        raise ValueError(f"`{name}` should be an integer or two of them, got {value!r}.")
    first, second = (int(v) for v in parts)
    if min(first, second) <= 0:
        raise ValueError(f"`{name}` should be positive, got {value!r}.")
    return first, second


def padding_named(value: Any) -> str:
    """The padding, "valid" or "same", from any case.

    Raises:
      ValueError: anything else.
    """
    name = value.lower() if isinstance(value, str) else value
    if name not in ("valid", "same"):
        raise ValueError(f"`padding` should be 'valid' or 'same', got {value!r}.")
    return str(name)


def format_named(value: Any) -> str:
    """The data format, "channels_last" (the default) or "channels_first".

    Raises:
      ValueError: anything else.
    """
    name = "channels_last" if value is None else str(value).lower()
    if name not in FORMATS:
        raise ValueError(f"`data_format` should be 'channels_last' or 'channels_first', got {value!r}.")
    return name


def channels_of(shape: Dims, data_format: str) -> int | None:
    """How many channels images of this shape have; None where that is not known."""
    return shape[-1] if data_format == "channels_last" else shape[1]


def shape_of_images(batch: int | None, space: Dims, channels: int | None, data_format: str) -> Dims:
    """The shape of images in the order of their data format."""
    return (batch, *space, channels) if data_format == "channels_last" else (batch, channels, *space)


def window_counts(shape: Dims, data_format: str, reach: Pair, strides: Pair, padding: str) -> Dims:
    """How many windows fit along height and width of images; None where the size is not known.

    Args:
      shape: of the images, batch and channels included.
      data_format, strides, padding: as the functions above give them.
      reach: from a window's first element to its last one.

    Raises:
      ValueError: a shape of no images, or images without room for one window.
    """
    if len(shape) != 4:
        raise ValueError(f"Windows slide over images, of 4 axes with batch and channels; got input shape {shape}.")
    space = shape[1:3] if data_format == "channels_last" else shape[2:4]
    counts = []
    for n, r, s in zip(space, reach, strides, strict=True):
        count = None if n is None else -(-n // s) if padding == "same" else (n - r) // s + 1
        if count is not None and count <= 0:
            raise ValueError(
                f"Computed output size would be zero or negative: windows of size {reach} do not fit into input of "
                f"shape {shape}. Use a smaller window, or padding='same'."
            )
        counts.append(count)
    return tuple(counts)


def channels_wanted(layer: str, shape: Dims, data_format: str) -> int:
    """The number of channels, which a layer's weights depend on.

    Raises:
      ValueError: where it is not known.
    """
    found = channels_of(shape, data_format)
    if found is None:
        raise ValueError(
            f"The number of channels of the inputs to layer '{layer}' should be known when it is built, "
            f"got shape {shape}."
        )
    return found
