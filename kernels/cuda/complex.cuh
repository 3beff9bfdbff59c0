// Elementary functions of complex numbers, named and defined as in the op table: branch cuts, signs of zeros, infinities
// and NaN as in Annex G of the C standard, which NumPy follows.
#pragma once

#include "functions.cuh"

namespace gradtape {

// ---------------------------------------------------------------- numbers and pieces

template <class T> struct Ranges;
template <>
struct Ranges<float32> {
    static constexpr float32 EXPONENT = 88.0f;        // up to here exp(x) is finite
    static constexpr float32 STEP = 64.0f;            // what larger ones are brought down by, and exp of that
    static constexpr float32 FACTOR = 6.2351490808116169e27f;
    static constexpr float32 FLAT = 12.0f;            // from here on, tanh(x) is 1
    static constexpr float32 LARGE = 0x1p26f;         // beside the square of this, 1 is nothing
    static constexpr float32 SMALL = 0x1p-26f;
    static constexpr float32 TINY = 0x1p-100f;        // below, squares and lengths have few digits
    static constexpr float32 UP = 0x1p100f, ROOT_DOWN = 0x1p-50f, LOG_UP = 69.3147180559945309f;
};
template <>
struct Ranges<float64> {
    static constexpr float64 EXPONENT = 709.0;
    static constexpr float64 STEP = 512.0;
    static constexpr float64 FACTOR = 2.2844135865397565e222;
    static constexpr float64 FLAT = 22.0;
    static constexpr float64 LARGE = 0x1p54;
    static constexpr float64 SMALL = 0x1p-54;
    static constexpr float64 TINY = 0x1p-960;
    static constexpr float64 UP = 0x1p960, ROOT_DOWN = 0x1p-480, LOG_UP = 665.42129333754749704;
};
constexpr float64 LN2 = 0.693147180559945309417, HALF_PI = 1.57079632679489661923;

DEVICE complex64 direction(float32 angle)
{
    float32 s, c;
    ::sincosf(angle, &s, &c);
    return {c, s};
}
DEVICE complex128 direction(float64 angle)
{
    float64 s, c;
    ::sincos(angle, &s, &c);
    return {c, s};
}
DEVICE float32 fused(float32 x, float32 y, float32 z) { return ::fmaf(x, y, z); }
DEVICE float64 fused(float64 x, float64 y, float64 z) { return ::fma(x, y, z); }
DEVICE float32 product(float32 x, float32 y) { return ::__fmul_rn(x, y); }  // rounded, whatever is added to it
DEVICE float64 product(float64 x, float64 y) { return ::__dmul_rn(x, y); }

// x y, and 0 where one of them is 0, whatever the other is.
template <class T>
DEVICE T scaled(T x, T y)
{
    return x == T(0) || y == T(0) ? with_sign(T(1), x) * with_sign(T(0), y) : x * y;
}

template <class T> DEVICE complex<T> swapped(complex<T> z) { return {z.im, z.re}; }

// ---------------------------------------------------------------- exponentials

// factor exp(x) (cos y + i sin y), also where exp(x) alone is too large.
template <class T>
DEVICE complex<T> rotated(T x, T y, T factor)
{
    complex<T> w = direction(y);
    if (x > Ranges<T>::EXPONENT) {
        x -= Ranges<T>::STEP;
        factor *= Ranges<T>::FACTOR;
    }
    w = {w.re * factor, w.im * factor};
    if (x > Ranges<T>::EXPONENT) {
        x -= Ranges<T>::STEP;
        w = {w.re * Ranges<T>::FACTOR, w.im * Ranges<T>::FACTOR};
    }
    const T size = exp(x);
    return {size * w.re, y == T(0) ? y : size * w.im};
}

template <class T>
DEVICE complex<T> exp(complex<T> z)
{
    if (is_inf(z.re) && !is_finite(z.im))
        return z.re < T(0) ? complex<T>{T(0), with_sign(T(0), z.im)} : complex<T>{z.re, not_a_number<T>()};
    return rotated(z.re, z.im, T(1));
}

// By parts, of which none loses digits near 0.
template <class T>
DEVICE complex<T> expm1(complex<T> z)
{
    const complex<T> w = direction(z.im);
    const T half = sin(z.im * T(0.5));
    return {expm1(z.re) * w.re - T(2) * half * half, exp(z.re) * w.im};
}

// cosh x cos y + i sinh x sin y
template <class T>
DEVICE complex<T> cosh(complex<T> z)
{
    const T size = abs(z.re);
    if (size > Ranges<T>::EXPONENT) {
        if (is_inf(size) && !is_finite(z.im))
            return {size, not_a_number<T>()};
        const complex<T> w = rotated(size, z.im, T(0.5));
        return {w.re, w.im * with_sign(T(1), z.re)};
    }
    const complex<T> w = direction(z.im);
    return {cosh(z.re) * w.re, scaled(sinh(z.re), w.im)};
}

// sinh x cos y + i cosh x sin y
template <class T>
DEVICE complex<T> sinh(complex<T> z)
{
    const T size = abs(z.re);
    if (size > Ranges<T>::EXPONENT) {
        if (is_inf(size) && !is_finite(z.im))
            return {z.re, not_a_number<T>()};
        const complex<T> w = rotated(size, z.im, T(0.5));
        return {w.re * with_sign(T(1), z.re), w.im};
    }
    const complex<T> w = direction(z.im);
    return {scaled(sinh(z.re), w.re), scaled(cosh(z.re), w.im)};
}

// (sinh x cosh x + i sin y cos y) / (sinh² x + cos² y)
template <class T>
DEVICE complex<T> tanh(complex<T> z)
{
    const T size = abs(z.re);
    if (is_inf(size) && !is_finite(z.im))
        return {with_sign(T(1), z.re), with_sign(T(0), z.im)};
    const complex<T> w = direction(z.im);
    if (size > Ranges<T>::FLAT)
        return {is_nan(w.re) ? w.re : with_sign(T(1), z.re), T(4) * w.im * w.re * exp(T(-2) * size)};
    const T s = sinh(z.re), below = s * s + w.re * w.re;
    return {z.re == T(0) ? z.re : s * cosh(z.re) / below, z.im == T(0) ? z.im : w.im * w.re / below};
}

// Of i z, as sin z = -i sinh(i z).
template <class T> DEVICE complex<T> sin(complex<T> z) { return swapped(sinh(swapped(z))); }
template <class T> DEVICE complex<T> cos(complex<T> z) { return cosh(complex<T>{-z.im, z.re}); }
template <class T> DEVICE complex<T> tan(complex<T> z) { return swapped(tanh(swapped(z))); }

// ---------------------------------------------------------------- logarithms and roots

// What x + y = sum has lost by rounding.
template <class T>
DEVICE T lost(T x, T y, T sum)
{
    const T part = sum - x;
    return (x - (sum - part)) + (y - part);
}

// x² + y² - 1, from the squares and sums with what they lose by rounding.
template <class T>
DEVICE T beyond_circle(T x, T y)
{
    const T p = product(x, x), q = product(y, y), first = p - T(1), sum = first + q;
    return sum + (lost(p, T(-1), first) + lost(first, q, sum) + (fused(x, x, -p) + fused(y, y, -q)));
}

// log |z|
template <class T>
DEVICE T log_of_size(complex<T> z)
{
    const T x = maximum(abs(z.re), abs(z.im)), y = minimum(abs(z.re), abs(z.im));
    if (x > T(0.5) && x < T(2))
        return T(0.5) * log1p(beyond_circle(x, y));
    if (x >= Ranges<T>::UP)
        return is_inf(x) ? x : log(complex_abs(complex<T>{x * T(0.5), y * T(0.5)})) + T(LN2);
    if (x < Ranges<T>::TINY)
        return log(complex_abs(complex<T>{x * Ranges<T>::UP, y * Ranges<T>::UP})) - Ranges<T>::LOG_UP;
    return log(complex_abs(z));
}

template <class T>
DEVICE complex<T> log(complex<T> z)
{
    const bool endless = is_inf(z.re) || is_inf(z.im);  // also beside NaN
    return {endless ? highest<T>() : log_of_size(z), atan2(z.im, z.re)};
}

// log(1 + z); where z is small, by log(1 + (|1 + z|² - 1)) / 2.
template <class T>
DEVICE complex<T> log1p(complex<T> z)
{
    const bool small = complex_abs(z) < T(0.5);
    const T size = small ? T(0.5) * log1p(z.re * (T(2) + z.re) + z.im * z.im)
                         : log(complex_abs(complex<T>{T(1) + z.re, z.im}));
    return {size, atan2(z.im, T(1) + z.re)};
}

// From |z| + |x|, in which nothing cancels; with numbers moved to where squares and sums are in range.
template <class T>
DEVICE complex<T> sqrt(complex<T> z)
{
    if (is_inf(z.im))
        return {highest<T>(), z.im};
    if (is_inf(z.re)) {
        const T small = is_nan(z.im) ? z.im : T(0);
        return z.re > T(0) ? complex<T>{z.re, with_sign(small, z.im)}
                           : complex<T>{small, with_sign(highest<T>(), z.im)};
    }
    T x = abs(z.re), y = abs(z.im), scale = T(1);
    if (x == T(0) && y == T(0))
        return {T(0), z.im};
    const T most = maximum(x, y);
    if (most >= Ranges<T>::UP)
        x *= T(0.0625), y *= T(0.0625), scale = T(4);
    else if (most < Ranges<T>::TINY)
        x *= Ranges<T>::UP, y *= Ranges<T>::UP, scale = Ranges<T>::ROOT_DOWN;
    const T root = sqrt((complex_abs(complex<T>{x, y}) + x) * T(0.5)), other = y / root * T(0.5) * scale;
    return z.re < T(0) ? complex<T>{other, with_sign(root * scale, z.im)}
                       : complex<T>{root * scale, with_sign(other, z.im)};
}

// Whole numbers below 100 by squares; else exp(y log x). 0 to a power without a positive real part is NaN.
template <class T>
DEVICE complex<T> pow(complex<T> x, complex<T> y)
{
    if (y == cast<complex<T>>(0))
        return {T(1), T(0)};
    if (x == cast<complex<T>>(0))
        return y.re > T(0) ? complex<T>{T(0), T(0)} : complex<T>{not_a_number<T>(), not_a_number<T>()};
    if (y.im != T(0) || !(abs(y.re) < T(100)) || rint(y.re) != y.re)
        return exp(y * log(x));
    if (y.re == T(1))
        return x;
    if (y.re == T(2))
        return x * x;
    if (y.re == T(3))
        return x * (x * x);
    complex<T> power = {T(1), T(0)};
    for (int n = int(abs(y.re)); n > 0; n >>= 1) {
        if (n & 1)
            power = power * x;
        x = x * x;
    }
    return y.re < T(0) ? complex<T>{T(1), T(0)} / power : power;
}

// ---------------------------------------------------------------- inverse functions

// The angle of asin(x + iy), or of acos, and the size of the imaginary part of both, which have no sign yet. From the
// distances r and s to the branch points -1 and 1: a = (r + s) / 2 is the large half-axis of the ellipse with these foci
// through z; a - x and a - 1 are written so that nothing cancels (Hull, Fairgrieve and Tang 1997).
template <bool COSINE, class T>
DEVICE complex<T> angle_and_size(complex<T> z)
{
    const T x = abs(z.re), y = abs(z.im);
    if (x > Ranges<T>::LARGE || y > Ranges<T>::LARGE) {
        const T size = log(complex_abs(complex<T>{x * T(0.5), y * T(0.5)})) + T(2 * LN2);
        return {COSINE ? atan2(y, z.re) : atan2(x, y), size};
    }
    const T r = complex_abs(complex<T>{x + T(1), y}), s = complex_abs(complex<T>{x - T(1), y});
    const T a = T(0.5) * (r + s), far = r + (x + T(1)), near = s + abs(x - T(1));
    const T twice = y * y / far + near;             // 2 (a - x) for x <= 1, 2 (a - 1) for x >= 1
    const T slope = T(1) / far + T(1) / near;       // y² of these is the other one
    const T to_x = T(0.5) * (a + x), to_1 = T(0.5) * (a + T(1));
    const T other = x <= T(1) ? sqrt(to_x * twice) : y * sqrt(to_x * slope);  // √(a² - x²)
    const T above = x < T(1) ? T(0.5) * y * y * slope + y * sqrt(to_1 * slope) : T(0.5) * twice + sqrt(to_1 * twice);
    return {COSINE ? atan2(other, z.re) : atan2(x, other), log1p(above)};
}

template <class T>
DEVICE complex<T> asin(complex<T> z)
{
    const complex<T> w = angle_and_size<false>(z);
    if (is_nan(z.re) || is_nan(z.im))
        return {z.re == T(0) ? z.re : not_a_number<T>(),
                is_inf(z.re) || is_inf(z.im) ? with_sign(highest<T>(), z.im) : not_a_number<T>()};
    return {with_sign(w.re, z.re), with_sign(w.im, z.im)};
}

template <class T>
DEVICE complex<T> acos(complex<T> z)
{
    const complex<T> w = angle_and_size<true>(z);
    if (is_nan(z.re) || is_nan(z.im))
        return {z.re == T(0) ? T(HALF_PI) : not_a_number<T>(),
                is_inf(z.re) || is_inf(z.im) ? with_sign(highest<T>(), -z.im) : not_a_number<T>()};
    return {w.re, with_sign(w.im, -z.im)};
}

template <class T> DEVICE complex<T> asinh(complex<T> z) { return swapped(asin(swapped(z))); }

template <class T>
DEVICE complex<T> acosh(complex<T> z)
{
    const complex<T> w = acos(z);
    return {abs(w.im), with_sign(w.re, z.im)};
}

// log((1 + z) / (1 - z)) / 2: log(1 + 4x / ((1 - x)² + y²)) / 4 and half the angle of (1 - x) (1 + x) - y² + 2iy.
template <class T>
DEVICE complex<T> atanh(complex<T> z)
{
    const T x = abs(z.re), y = abs(z.im);
    if (x > Ranges<T>::LARGE || y > Ranges<T>::LARGE) {
        const T size = complex_abs(complex<T>{x * T(0.5), y * T(0.5)});
        const T part = is_inf(size) ? T(0) : T(0.5) * (T(0.5) * x / size) / size;
        const bool known = is_inf(y) || !(is_nan(x) || is_nan(y));
        return {with_sign(part, z.re), known ? with_sign(T(HALF_PI), z.im) : not_a_number<T>()};
    }
    const T left = T(1) - x;
    const T part = x == T(1) && y < Ranges<T>::SMALL ? T(0.5) * (T(LN2) - log(y))
                                                     : T(0.25) * log1p(T(4) * x / (left * left + y * y));
    const T angle = T(0.5) * atan2(T(2) * z.im, left * (T(1) + x) - y * y);
    return {z.re == T(0) ? z.re : with_sign(part, z.re), angle};
}

template <class T> DEVICE complex<T> atan(complex<T> z) { return swapped(atanh(swapped(z))); }

}  // namespace gradtape
