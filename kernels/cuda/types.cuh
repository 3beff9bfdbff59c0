// Element types by the names of gradtape's dtypes, and two-byte floats, which are stored as such and computed in float32.
#pragma once

#define DEVICE __device__ __forceinline__

namespace gradtape {

using int8 = signed char;
using int16 = short;
using int32 = int;
using int64 = long long;
using uint8 = unsigned char;
using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;
using float32 = float;
using float64 = double;

template <class T>
struct complex {
    T re, im;
};
using complex64 = complex<float32>;
using complex128 = complex<float64>;

struct float16 {
    uint16 bits;
};
struct bfloat16 {
    uint16 bits;
};

template <class T> constexpr bool is_float = false;
template <> constexpr bool is_float<float32> = true;
template <> constexpr bool is_float<float64> = true;
template <class T> constexpr bool is_complex = false;
template <class T> constexpr bool is_complex<complex<T>> = true;
template <class T> constexpr bool is_whole = !is_float<T> && !is_complex<T>;  // integers and bool
template <class T> constexpr bool is_bool = false;
template <> constexpr bool is_bool<bool> = true;
template <class T> constexpr bool is_signed = T(-1) < T(0);
template <> constexpr bool is_signed<complex64> = true;
template <> constexpr bool is_signed<complex128> = true;

// Integers wrap around, which only unsigned ones may do in C++.
template <int BYTES> struct WordOf { using type = uint32; };
template <> struct WordOf<8> { using type = uint64; };
template <class T> using Word = typename WordOf<sizeof(T)>::type;

// The bytes of a value as another type of the same size.
template <class T, class S>
DEVICE T bitcast(S x)
{
    static_assert(sizeof(T) == sizeof(S), "a bit cast keeps the size");
    union {
        S from;
        T to;
    } both = {x};
    return both.to;
}

// ---------------------------------------------------------------- two-byte floats
// By one instruction where NVIDIA's front end compiles, by integers elsewhere.

template <class T> DEVICE T widen(T x) { return x; }

DEVICE float32 widen(bfloat16 h) { return bitcast<float32>(uint32(h.bits) << 16); }

DEVICE float32 widen(float16 h)
{
#ifdef __EDG__
    float32 x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h.bits));
    return x;
#else
    const uint32 size = h.bits & 0x7fff, sign = uint32(h.bits & 0x8000) << 16;
    const uint32 rebias = (127 - 15) << 23;
    const uint32 small = bitcast<uint32>(float32(size) * 0x1p-24f);
    const uint32 normal = (size << 13) + (size >= 0x7c00 ? 2 * rebias : rebias);
    return bitcast<float32>((size < 0x0400 ? small : normal) | sign);
#endif
}

template <class T> DEVICE T narrow(float32 x);

// The first half of the bits, rounded, halves to even; NaN stays NaN.
template <>
DEVICE bfloat16 narrow<bfloat16>(float32 x)
{
    const uint32 b = bitcast<uint32>(x);
    const uint32 rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
    return {uint16(x != x ? (b >> 16) | 0x40 : rounded)};
}

// The nearest float16, halves to even.
template <>
DEVICE float16 narrow<float16>(float32 x)
{
#ifdef __EDG__
    float16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(x));
    return h;
#else
    const uint32 b = bitcast<uint32>(x), sign = (b >> 16) & 0x8000, size = b & 0x7fffffff;
    const uint32 shifted = size - ((127 - 15) << 23);
    const uint32 normal = (shifted + 0x0fff + ((shifted >> 13) & 1)) >> 13;
    const float32 magnitude = bitcast<float32>(size);
    const uint32 small = bitcast<uint32>(magnitude * 0x1p24f + 0x1.8p23f) & 0x07ff;  // adding rounds to whole numbers
    uint32 found = magnitude < 0x1p-14f ? small : normal;
    found = magnitude >= 65520.0f ? 0x7c00 : found;
    return {uint16((x != x ? 0x7e00 : found) | sign)};
#endif
}

// A float32 that rounds to the half that x rounds to: where it is not x itself, it is the neighbour whose last bit is 1,
// which is no middle between two halves.
DEVICE float32 rounded_to_odd(float32 x) { return x; }

DEVICE float32 rounded_to_odd(float64 x)
{
    const float32 near = float32(x);
    const uint32 bits = bitcast<uint32>(near);
    if (float64(near) == x || x != x || bits % 2 == 1)
        return near;
    const bool below = x < 0 ? float64(near) > x : float64(near) < x;  // nearer to 0 than x
    return bitcast<float32>(below ? bits + 1 : bits - 1);
}

// Of an integer the first 24 bits, the last of them set if any later one is.
template <class T>
DEVICE float32 rounded_to_odd(T x)
{
    if constexpr (is_complex<T>) {
        return rounded_to_odd(x.re);
    } else if constexpr (sizeof(T) < 4) {
        return float32(x);
    } else {
        const bool minus = x < T(0);
        const uint64 size = minus ? uint64(0) - uint64(x) : uint64(x);
        const int more = size >> 24 == 0 ? 0 : 40 - ::__clzll((long long)size);
        const uint32 first = uint32(size >> more) | uint32(size << 1 << (63 - more) != 0);
        const float32 found = float32(first) * bitcast<float32>(uint32(127 + more) << 23);
        return minus ? -found : found;
    }
}

DEVICE float32 round_float16(float32 x) { return widen(narrow<float16>(x)); }
DEVICE float32 round_bfloat16(float32 x) { return widen(narrow<bfloat16>(x)); }

// The half after x on the way to y.
template <class T>
DEVICE float32 nextafter_of(float32 x, float32 y)
{
    const T h = narrow<T>(x);
    const float32 from = widen(h), to = widen(narrow<T>(y));
    if (from == to || from != from || to != to)
        return from != from ? from : to;
    if (from == 0)
        return widen(T{uint16(to < 0 ? 0x8001 : 1)});
    return widen(T{uint16((from < to) == (from > 0) ? h.bits + 1 : h.bits - 1)});
}

// A value as an array of `T` holds it.
template <class T, class S> DEVICE T stored(S x) { return T(x); }
template <> DEVICE float16 stored<float16, float32>(float32 x) { return narrow<float16>(x); }
template <> DEVICE bfloat16 stored<bfloat16, float32>(float32 x) { return narrow<bfloat16>(x); }

}  // namespace gradtape
