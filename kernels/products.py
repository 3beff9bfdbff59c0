"""Products of tall matrices as stacks of small ones, which BLAS runs in the thread that asks: threads of ours take
rows apart, and none of them waits for BLAS's own. Floor: kernels.

Rows come in images of equal numbers of rows. A small product has the rows of a few images, or a part of one image's, so
that the same rows meet whatever the number of threads, and results have the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

SMALL = 1 << 19  # multiply-adds up to which a product is small
FEWEST = 8  # rows below which small products would mostly read the other matrix


def images_at_once(rows: int, inner: int, columns: int) -> int:
    """How many images' rows one small product has; 0: none, products are small for other reasons or not at all."""
    most = _most(inner, columns)
    return 0 if most < FEWEST else max(1, most // max(1, rows))


def product(a: Any, b: Any, out: Any, rows: int) -> None:
    """out = a @ b for stacks (groups, images and rows, inner) and (groups, inner, columns); `rows`: of an image."""
    (groups, total, inner), columns = a.shape, b.shape[2]
    most = _most(inner, columns)
    if most < FEWEST or not out.size:
        np.matmul(a, b, out=out)
        return
    if rows <= most:  # several images at once
        images, rows, size = 1, total, most // rows * rows
    else:
        images = total // rows
        size = -(-rows // -(-rows // most))  # parts of nearly equal height
    cut = rows // size * size
    a, out = a.reshape(groups, images, rows, inner), out.reshape(groups, images, rows, columns)
    if cut:
        parts = (groups, images, rows // size, size)
        np.matmul(a[:, :, :cut].reshape(*parts, inner), b[:, None, None], out=out[:, :, :cut].reshape(*parts, columns))
    if cut < rows:
        np.matmul(a[:, :, cut:], b[:, None], out=out[:, :, cut:])


def _most(inner: int, columns: int) -> int:
    return SMALL // max(1, inner * columns)
