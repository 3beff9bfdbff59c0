// Arithmetic, comparisons, choices and whole numbers, named and defined as in the op table.
#pragma once

#include "types.cuh"

namespace gradtape {

// ---------------------------------------------------------------- limits

template <class T> DEVICE T not_a_number() { return T(bitcast<float32>(0x7fc00000u)); }

template <class T>
DEVICE T highest()
{
    if constexpr (is_float<T>)
        return T(bitcast<float32>(0x7f800000u));
    else if constexpr (is_signed<T>)
        return T(~(uint64(1) << 63) >> (64 - 8 * sizeof(T)));
    else
        return T(~uint64(0) >> (64 - 8 * sizeof(T)));
}

template <class T>
DEVICE T lowest()
{
    if constexpr (is_float<T>)
        return -highest<T>();
    else if constexpr (is_signed<T>)
        return T(-highest<T>() - 1);
    else
        return T(0);
}

// ---------------------------------------------------------------- other types

// A float without its fraction. One that is too large, and NaN, is what x86 processors make of it in 32 bits, in 64 for
// uint32 and longer ones: the smallest number, of which the last bits are taken.
template <class T, class S>
DEVICE T whole(S x)
{
    constexpr S end = S(0x1p63), short_end = S(0x1p31);
    if constexpr (sizeof(T) < 4 || (sizeof(T) == 4 && is_signed<T>))
        return T(x > -short_end - S(1) && x < short_end ? int32(x) : lowest<int32>());
    if constexpr (sizeof(T) == 8 && !is_signed<T>)
        if (x >= end)
            return x < S(2) * end ? T(x) : T(0);
    return T(x >= -end && x < end ? int64(x) : lowest<int64>());
}

template <class T, class S>
DEVICE T cast(S x)
{
    if constexpr (is_complex<T> && is_complex<S>)
        return {cast<decltype(T::re)>(x.re), cast<decltype(T::re)>(x.im)};
    else if constexpr (is_complex<T>)
        return {cast<decltype(T::re)>(x), 0};
    else if constexpr (is_complex<S> && is_bool<T>)
        return x.re != 0 || x.im != 0;
    else if constexpr (is_complex<S>)
        return cast<T>(x.re);
    else if constexpr (is_float<S> && is_whole<T> && !is_bool<T>)
        return whole<T>(x);
    else if constexpr (is_whole<S> && is_whole<T> && sizeof(T) > 1)
        return T(Word<T>(x));
    else
        return T(x);
}

// ---------------------------------------------------------------- complex numbers

template <class T> DEVICE complex<T> operator+(complex<T> x, complex<T> y) { return {x.re + y.re, x.im + y.im}; }
template <class T> DEVICE complex<T> operator-(complex<T> x, complex<T> y) { return {x.re - y.re, x.im - y.im}; }
template <class T> DEVICE complex<T> operator-(complex<T> x) { return {-x.re, -x.im}; }
template <class T> DEVICE bool operator==(complex<T> x, complex<T> y) { return x.re == y.re && x.im == y.im; }
template <class T> DEVICE bool operator!=(complex<T> x, complex<T> y) { return !(x == y); }

template <class T>
DEVICE complex<T> operator*(complex<T> x, complex<T> y)
{
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

// By the larger part of y, so that its square is not formed.
template <class T>
DEVICE complex<T> operator/(complex<T> x, complex<T> y)
{
    const T re = y.re < 0 ? -y.re : y.re, im = y.im < 0 ? -y.im : y.im;
    if (re >= im) {
        if (re == 0 && im == 0)
            return {x.re / re, x.im / re};
        const T ratio = y.im / y.re, scale = T(1) / (y.re + y.im * ratio);
        return {(x.re + x.im * ratio) * scale, (x.im - x.re * ratio) * scale};
    }
    const T ratio = y.re / y.im, scale = T(1) / (y.im + y.re * ratio);
    return {(x.re * ratio + x.im) * scale, (x.im * ratio - x.re) * scale};
}

// `complex` is the name of the type; the op of this name is spelled `complex_of`.
template <class T> DEVICE complex<T> complex_of(T re, T im) { return {re, im}; }
template <class T> DEVICE T real(complex<T> x) { return x.re; }
template <class T> DEVICE T imag(complex<T> x) { return x.im; }
template <class T> DEVICE complex<T> conj(complex<T> x) { return {x.re, -x.im}; }
template <class T> DEVICE T real(T x) { return x; }
template <class T> DEVICE T imag(T) { return T(0); }
template <class T> DEVICE T conj(T x) { return x; }
DEVICE float32 complex_abs(complex64 x) { return ::hypotf(x.re, x.im); }
DEVICE float64 complex_abs(complex128 x) { return ::hypot(x.re, x.im); }

// ---------------------------------------------------------------- numbers

template <class T>
DEVICE T add(T x, T y)
{
    if constexpr (is_whole<T>)
        return T(Word<T>(x) + Word<T>(y));
    else
        return x + y;
}

template <class T>
DEVICE T subtract(T x, T y)
{
    if constexpr (is_whole<T>)
        return T(Word<T>(x) - Word<T>(y));
    else
        return x - y;
}

template <class T>
DEVICE T multiply(T x, T y)
{
    if constexpr (is_whole<T>)
        return T(Word<T>(x) * Word<T>(y));
    else
        return x * y;
}

template <class T>
DEVICE T negative(T x)
{
    if constexpr (is_whole<T>)
        return T(Word<T>(0) - Word<T>(x));
    else
        return -x;
}

template <class T> DEVICE T divide(T x, T y) { return x / y; }
template <class T> DEVICE T square(T x) { return multiply(x, x); }
template <class T> DEVICE T reciprocal(T x) { return cast<T>(1) / x; }
template <class T> DEVICE T identity(T x) { return x; }
template <class T> DEVICE T stop_gradient(T x) { return x; }
template <class T> DEVICE T assigned(T, T y) { return y; }
template <class T> DEVICE T select(bool condition, T x, T y) { return condition ? x : y; }
template <class T> DEVICE T step(T x) { return T(x > T(0)); }

DEVICE float32 abs(float32 x) { return ::fabsf(x); }
DEVICE float64 abs(float64 x) { return ::fabs(x); }
template <class T>
DEVICE T abs(T x)
{
    if constexpr (is_signed<T>)
        return x < 0 ? negative(x) : x;
    else
        return x;
}

// -1, 0 or 1; NaN of NaN.
template <class T>
DEVICE T sign(T x)
{
    const T one = x > T(0) ? T(1) : T(0);
    if constexpr (is_float<T>)
        return x != x ? x : x < T(0) ? T(-1) : one;
    else if constexpr (is_signed<T>)
        return x < T(0) ? T(-1) : one;
    else
        return one;
}

// NaN where one of both is.
template <class T> DEVICE T maximum(T x, T y) { return x >= y || x != x ? x : y; }
template <class T> DEVICE T minimum(T x, T y) { return x <= y || x != x ? x : y; }

template <class T> DEVICE T multiply_no_nan(T x, T y) { return y == cast<T>(0) ? cast<T>(0) : x * y; }
template <class T> DEVICE T divide_no_nan(T x, T y) { return y == cast<T>(0) ? cast<T>(0) : x / y; }

// ---------------------------------------------------------------- truth values

template <class T> DEVICE bool less(T x, T y) { return x < y; }
template <class T> DEVICE bool less_equal(T x, T y) { return x <= y; }
template <class T> DEVICE bool greater(T x, T y) { return x > y; }
template <class T> DEVICE bool greater_equal(T x, T y) { return x >= y; }
template <class T> DEVICE bool equal(T x, T y) { return x == y; }
template <class T> DEVICE bool not_equal(T x, T y) { return x != y; }
DEVICE bool logical_and(bool x, bool y) { return x && y; }
DEVICE bool logical_or(bool x, bool y) { return x || y; }
DEVICE bool logical_xor(bool x, bool y) { return x != y; }
DEVICE bool logical_not(bool x) { return !x; }

template <class T> DEVICE bool is_nan(T x) { return x != x; }
template <class T> DEVICE bool is_inf(T x) { return abs(x) == highest<T>(); }
template <class T> DEVICE bool is_finite(T x) { return abs(x) < highest<T>(); }
template <class T>
DEVICE bool has_log(T x)
{
    if constexpr (is_complex<T>)
        return x != cast<T>(0);
    else
        return x > T(0);
}

// ---------------------------------------------------------------- bits

template <class T> DEVICE T bitwise_and(T x, T y) { return T(x & y); }
template <class T> DEVICE T bitwise_or(T x, T y) { return T(x | y); }
template <class T> DEVICE T bitwise_xor(T x, T y) { return T(x ^ y); }
template <class T> DEVICE T invert(T x) { return T(~x); }

// By the width and more, all bits leave.
template <class T>
DEVICE T left_shift(T x, T y)
{
    return Word<T>(y) < Word<T>(8 * sizeof(T)) ? T(Word<T>(x) << Word<T>(y)) : T(0);
}

template <class T>
DEVICE T right_shift(T x, T y)
{
    const bool stays = Word<T>(y) < Word<T>(8 * sizeof(T));
    return stays ? T(x >> y) : sign(x) == T(-1) && is_signed<T> ? T(-1) : T(0);
}

// ---------------------------------------------------------------- quotients without fractions

DEVICE float32 remainder_of(float32 x, float32 y) { return ::fmodf(x, y); }
DEVICE float64 remainder_of(float64 x, float64 y) { return ::fmod(x, y); }
DEVICE float32 with_sign(float32 x, float32 y) { return ::copysignf(x, y); }
DEVICE float64 with_sign(float64 x, float64 y) { return ::copysign(x, y); }
DEVICE float32 floor(float32 x) { return ::floorf(x); }
DEVICE float64 floor(float64 x) { return ::floor(x); }
DEVICE float32 ceil(float32 x) { return ::ceilf(x); }
DEVICE float64 ceil(float64 x) { return ::ceil(x); }
DEVICE float32 rint(float32 x) { return ::rintf(x); }
DEVICE float64 rint(float64 x) { return ::rint(x); }

// Of integers by 0, which the host refuses where it can see them, it is 0.
template <class T>
DEVICE T truncatediv(T x, T y)
{
    if constexpr (is_float<T>) {
        const T rest = remainder_of(x, y);
        return is_finite(rest) ? rint((x - rest) / y) : x / y;
    } else {
        if (y == T(0))
            return T(0);
        if constexpr (is_signed<T>)
            if (y == T(-1))
                return negative(x);
        return T(x / y);
    }
}

template <class T>
DEVICE T truncatemod(T x, T y)
{
    if constexpr (is_float<T>) {
        return remainder_of(x, y);
    } else {
        if (y == T(0))
            return T(0);
        if constexpr (is_signed<T>)
            if (y == T(-1))
                return T(0);
        return T(x % y);
    }
}

// The remainder with the sign of y.
template <class T>
DEVICE T floormod(T x, T y)
{
    const T rest = truncatemod(x, y);
    if constexpr (is_float<T>) {
        return rest == T(0) ? with_sign(rest, y) : (y < T(0)) != (rest < T(0)) ? rest + y : rest;
    } else if constexpr (is_signed<T>) {
        return rest != T(0) && (y < T(0)) != (rest < T(0)) ? T(rest + y) : rest;
    } else {
        return rest;
    }
}

// floor(x / y); of floats x / y where that is no finite number, from the exact remainder otherwise.
template <class T>
DEVICE T floordiv(T x, T y)
{
    if constexpr (is_float<T>) {
        if (y == T(0) || is_inf(x))
            return x / y;
        const T rest = remainder_of(x, y);
        const bool below = rest != T(0) && (y < T(0)) != (rest < T(0));
        const T quotient = (x - rest) / y - (below ? T(1) : T(0));
        const T whole = floor(quotient) + (quotient - floor(quotient) > T(0.5) ? T(1) : T(0));
        return quotient == T(0) ? with_sign(T(0), x / y) : whole;
    } else {
        const T quotient = truncatediv(x, y);
        if constexpr (is_signed<T>)
            return truncatemod(x, y) != T(0) && (x < T(0)) != (y < T(0)) ? T(quotient - 1) : quotient;
        else
            return quotient;
    }
}

}  // namespace gradtape
