// Elementary and special functions, named and defined as in the op table.
#pragma once

#include "arithmetic.cuh"

namespace gradtape {

// What CUDA has, for both precisions.
#define GRADTAPE_FUNCTION(name, single, whole)                \
    DEVICE float32 name(float32 x) { return ::single(x); } \
    DEVICE float64 name(float64 x) { return ::whole(x); }

#define GRADTAPE_FUNCTION_OF_TWO(name, single, whole)                          \
    DEVICE float32 name(float32 x, float32 y) { return ::single(x, y); } \
    DEVICE float64 name(float64 x, float64 y) { return ::whole(x, y); }

GRADTAPE_FUNCTION(sqrt, sqrtf, sqrt)
GRADTAPE_FUNCTION(rsqrt, rsqrtf, rsqrt)
GRADTAPE_FUNCTION(exp, expf, exp)
GRADTAPE_FUNCTION(expm1, expm1f, expm1)
GRADTAPE_FUNCTION(log, logf, log)
GRADTAPE_FUNCTION(log1p, log1pf, log1p)
GRADTAPE_FUNCTION(sin, sinf, sin)
GRADTAPE_FUNCTION(cos, cosf, cos)
GRADTAPE_FUNCTION(tan, tanf, tan)
GRADTAPE_FUNCTION(asin, asinf, asin)
GRADTAPE_FUNCTION(acos, acosf, acos)
GRADTAPE_FUNCTION(atan, atanf, atan)
GRADTAPE_FUNCTION(sinh, sinhf, sinh)
GRADTAPE_FUNCTION(cosh, coshf, cosh)
GRADTAPE_FUNCTION(tanh, tanhf, tanh)
GRADTAPE_FUNCTION(asinh, asinhf, asinh)
GRADTAPE_FUNCTION(acosh, acoshf, acosh)
GRADTAPE_FUNCTION(atanh, atanhf, atanh)
GRADTAPE_FUNCTION(erf, erff, erf)
GRADTAPE_FUNCTION(erfc, erfcf, erfc)
GRADTAPE_FUNCTION(erfinv, erfinvf, erfinv)
GRADTAPE_FUNCTION(erfcinv, erfcinvf, erfcinv)
GRADTAPE_FUNCTION(ndtr, normcdff, normcdf)
GRADTAPE_FUNCTION(ndtri, normcdfinvf, normcdfinv)
GRADTAPE_FUNCTION(lgamma, lgammaf, lgamma)
GRADTAPE_FUNCTION(bessel_i0, cyl_bessel_i0f, cyl_bessel_i0)
GRADTAPE_FUNCTION(bessel_i1, cyl_bessel_i1f, cyl_bessel_i1)
GRADTAPE_FUNCTION_OF_TWO(atan2, atan2f, atan2)
GRADTAPE_FUNCTION_OF_TWO(pow, powf, pow)
GRADTAPE_FUNCTION_OF_TWO(nextafter, nextafterf, nextafter)

// Of integers by squares; with a negative exponent what is left of 1 / x without its fraction.
template <class T>
DEVICE T pow(T x, T y)
{
    if (y < T(0))
        return x == T(1) ? x : is_signed<T> && x == T(-1) ? (y % T(2) == T(0) ? T(1) : x) : T(0);
    T result = T(1);
    for (T n = y; n != T(0); n = T(n / T(2))) {
        if (n % T(2) != T(0))
            result = multiply(result, x);
        x = multiply(x, x);
    }
    return result;
}

// ---------------------------------------------------------------- activations

// 1 / (1 + exp(-x)), by an exponential that is never more than 1.
template <class T>
DEVICE T sigmoid(T x)
{
    const T small = exp(-abs(x));
    return (x > T(0) ? T(1) : small) / (T(1) + small);
}

// log(1 + exp(x))
template <class T> DEVICE T softplus(T x) { return maximum(x, T(0)) + log1p(exp(-abs(x))); }

// x / (1 + exp(-x)); exp(x) in two halves, so that x is multiplied in before digits are lost. NaN at -inf, as 0 inf is.
template <class T>
DEVICE T silu(T x)
{
    const T half = exp(T(-0.5) * abs(x)), factor = x >= T(0) ? T(1) : half;
    return x * factor * factor / (T(1) + half * half);
}

// x P(X < x) of the standard normal distribution
template <class T> DEVICE T gelu(T x) { return x * ndtr(x); }

}  // namespace gradtape
