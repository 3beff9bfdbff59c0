"""Declarations: the one contraction. Floor: ops."""

from __future__ import annotations

from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.contraction import Contraction
from gradtape.ops.samples import BadSample, Sample, Spec

CONTRACT = Contraction(
    "contract",
    samples=[
        Sample((Spec((2, 3)), Spec((3, 4))), {"subscripts": "ij,jk->ik"}),
        Sample((Spec((2, 3)), Spec((4, 3))), {"subscripts": "ij,kj->ki"}),
        Sample((Spec((2, 2, 3)), Spec((2, 3, 2))), {"subscripts": "bij,bjk->bik"}),
        Sample((Spec((2, 3)), Spec((3, 2, 2))), {"subscripts": "ij,jbi->b"}),
        Sample((Spec((2,)), Spec((3,))), {"subscripts": "i,j->ji"}),
        Sample((Spec((2, 3)), Spec((2, 3))), {"subscripts": "ij,ij->"}),
        Sample((Spec((2, 3)), Spec((3,))), {"subscripts": "ij,j->ij"}),
        Sample((Spec((2, 0)), Spec((0, 3))), {"subscripts": "ij,jk->ik"}),
        Sample((Spec((2, 3)), Spec(())), {"subscripts": "ij,->ij"}),
    ],
    errors=[
        BadSample(
            (((2, 3), "float32"), ((4, 5), "float32")),
            InvalidArgumentError,
            "incompatible shapes",
            {"subscripts": "ij,jk->ik"},
        ),
        BadSample(
            (((2, 3), "float32"), ((3, 5), "float64")), InvalidArgumentError, "double", {"subscripts": "ij,jk->ik"}
        ),
    ],
    doc="einsum of two operands: products over shared letters, summed over those that the result lacks.",
)
