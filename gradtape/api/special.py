"""`tf.math.special`. Floor: api."""

from gradtape.api.transcendental import bessel_i0, bessel_i0e, bessel_i1, bessel_i1e

__all__ = ["bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e"]
