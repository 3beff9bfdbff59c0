"""Products of tall matrices as stacks of small ones, which BLAS runs in the thread that asks, and faster than large
ones: threads of ours share the rows, and none of them waits for BLAS's own. Floor: kernels.

Rows come in images of equal numbers of rows. A small product has the rows of a few images, or a part of one image's:
which ones does not depend on the number of threads, so that results do not either."""

from __future__ import annotations

from typing import Any

import numpy as np

SMALL = 1 << 19  # multiply-adds up to which a product is small
FEWEST = 8  # rows below which small products would mostly read the other matrix
TALL = 112  # rows over which a small product sums
NARROWEST = 32  # columns of one matrix below which such a product would mostly read the other


def images_at_once(rows: int, inner: int, columns: int) -> int:
    """How many images' rows one small product has; 0: there are no small products of these sizes."""
    most = _most(inner, columns)
    return 0 if most < FEWEST else max(1, most // max(1, rows))


def product(a: Any, b: Any, out: Any, rows: int) -> None:
    """out = a @ b for stacks (groups, images and rows, inner) and (groups, inner, columns); `rows`: of an image."""
    most = _most(*b.shape[1:])
    if most < FEWEST or not out.size:
        np.matmul(a, b, out=out)
        return
    for part, result in zip(_parts(a, rows, most), _parts(out, rows, most), strict=True):
        np.matmul(part, b[:, None, None], out=result)


def images_summed_at_once(rows: int, inner: int, columns: int) -> int:
    """The same of products that sum over rows."""
    return max(1, TALL // max(1, rows)) if _width(inner, columns) else 0


def add_product(a: Any, b: Any, total: Any, rows: int) -> None:
    """total += a.T @ b for stacks (groups, images and rows, inner) and (groups, images and rows, columns)."""
    groups, inner, columns = total.shape
    width = _width(inner, columns)
    if not width:
        total += np.matmul(a.transpose(0, 2, 1), b)
        return
    for part, other in zip(_parts(a, rows, TALL), _parts(b, rows, TALL), strict=True):
        slices = part.reshape(*part.shape[:4], inner // width, width).transpose(0, 1, 2, 4, 5, 3)
        total += np.matmul(slices, other[:, :, :, None]).sum((1, 2)).reshape(groups, inner, columns)


def _width(inner: int, columns: int) -> int:
    """How many columns of the first matrix a small product that sums over rows has; 0: there is none."""
    most = _most(TALL, columns)
    if inner <= most:
        return inner
    return max((w for w in range(NARROWEST, most + 1) if inner % w == 0), default=0)


def _most(inner: int, columns: int) -> int:
    return SMALL // max(1, inner * columns)


def _parts(a: Any, rows: int, most: int) -> list[Any]:
    """Views (groups, images, parts, height, n) of (groups, images and rows, n), of at most so many rows: those of equal
    height, and what is left."""
    groups, total, n = a.shape
    if not total:
        return []
    if rows <= most:  # several images at once
        images, rows, height = 1, total, most // rows * rows
    else:
        images, height = total // rows, -(-rows // -(-rows // most))
    cut = rows // height * height
    whole = a.reshape(groups, images, rows, n)
    equal = whole[:, :, :cut].reshape(groups, images, cut // height, height, n)
    return [equal] * (cut > 0) + [whole[:, :, None, cut:]] * (cut < rows)
