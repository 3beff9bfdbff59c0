// __half and __nv_bfloat16: two bytes of storage, conversions that round to nearest even, and arithmetic by float.
#pragma once

struct __half_raw {
    unsigned short x;
};

struct __nv_bfloat16_raw {
    unsigned short x;
};

namespace emulator {

inline float widen_half(unsigned short bits) {
    const unsigned sign = unsigned(bits >> 15) << 31, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) return bits_as<float>(sign | 0x7f800000u | fraction << 13);
    const float size = exponent == 0 ? float(fraction) * 5.9604644775390625e-8f  // 2^-24
                                     : bits_as<float>((exponent + 112) << 23 | fraction << 13);
    return bits_as<float>(sign | bits_as<unsigned>(size));
}

// `kept` of the bits of `value` stay, the rest decides the rounding.
inline unsigned round_to_even(unsigned value, int dropped) {
    const unsigned half = 1u << (dropped - 1), rest = value & ((1u << dropped) - 1), kept = value >> dropped;
    return kept + (rest > half || (rest == half && (kept & 1)) ? 1u : 0u);
}

inline unsigned short narrow_to_half(float x) {
    const unsigned bits = bits_as<unsigned>(x), size = bits & 0x7fffffffu;
    const unsigned sign = bits >> 16 & 0x8000u;
    if (size > 0x7f800000u) return 0x7fff;                                 // NaN, as the device writes it
    if (size >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);      // 65520 and more
    if (size >= 0x38800000u) return (unsigned short)(sign | round_to_even(size - (112u << 23), 13));
    if (size < 0x33000000u) return (unsigned short)sign;                   // less than half of the smallest
    const unsigned exponent = size >> 23, fraction = (size & 0x7fffffu) | 0x800000u;
    return (unsigned short)(sign | round_to_even(fraction, int(126 - exponent)));
}

inline float widen_bfloat16(unsigned short bits) { return bits_as<float>(unsigned(bits) << 16); }

inline unsigned short narrow_to_bfloat16(float x) {
    const unsigned bits = bits_as<unsigned>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (unsigned short)round_to_even(bits, 16);
}

}  // namespace emulator

// A type of two bytes with what CUDA's headers give it. `T2` is the pair in four bytes.
#define EMULATOR_HALF(T, T2, Raw, widen, narrow)                                                    \
    struct T {                                                                                      \
        unsigned short bits;                                                                        \
        T() = default;                                                                              \
        T(float x) : bits(narrow(x)) {}                                                             \
        T(double x) : bits(narrow(float(x))) {}                                                     \
        T(int x) : bits(narrow(float(x))) {}                                                        \
        T(Raw raw) : bits(raw.x) {}                                                                 \
        operator float() const { return widen(bits); }                                              \
        operator Raw() const { return {bits}; }                                                     \
    };                                                                                              \
    static_assert(sizeof(T) == 2 && alignof(T) == 2, "two bytes");                                  \
    struct alignas(4) T2 { T x, y; };                                                               \
    inline T operator+(T a, T b) { return T(float(a) + float(b)); }                                 \
    inline T operator-(T a, T b) { return T(float(a) - float(b)); }                                 \
    inline T operator*(T a, T b) { return T(float(a) * float(b)); }                                 \
    inline T operator/(T a, T b) { return T(float(a) / float(b)); }                                 \
    inline T operator-(T a) { return T(-float(a)); }                                                \
    inline bool operator==(T a, T b) { return float(a) == float(b); }                               \
    inline bool operator!=(T a, T b) { return float(a) != float(b); }                               \
    inline bool operator<(T a, T b) { return float(a) < float(b); }                                 \
    inline bool operator>(T a, T b) { return float(a) > float(b); }                                 \
    inline bool operator<=(T a, T b) { return float(a) <= float(b); }                               \
    inline bool operator>=(T a, T b) { return float(a) >= float(b); }                               \
    inline T __hadd(T a, T b) { return a + b; }                                                     \
    inline T __hsub(T a, T b) { return a - b; }                                                     \
    inline T __hmul(T a, T b) { return a * b; }                                                     \
    inline T __hdiv(T a, T b) { return a / b; }                                                     \
    inline T __hneg(T a) { return -a; }                                                             \
    inline bool __hisnan(T a) { return isnan(float(a)); }                                           \
    inline bool __heq(T a, T b) { return a == b; }                                                  \
    inline bool __hlt(T a, T b) { return a < b; }                                                   \
    inline bool __hgt(T a, T b) { return a > b; }

EMULATOR_HALF(__half, __half2, __half_raw, emulator::widen_half, emulator::narrow_to_half)
EMULATOR_HALF(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, emulator::widen_bfloat16, emulator::narrow_to_bfloat16)
#undef EMULATOR_HALF

using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline float __half2float(__half x) { return float(x); }
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __double2half(double x) { return __half(float(x)); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline short __half_as_short(__half x) { return short(x.bits); }
inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
inline __half __short_as_half(short bits) { return __ushort_as_half((unsigned short)bits); }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline float __low2float(__half2 v) { return float(v.x); }
inline float __high2float(__half2 v) { return float(v.y); }

inline float __bfloat162float(__nv_bfloat16 x) { return float(x); }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(float(x)); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16(__nv_bfloat16_raw{bits}); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
inline float __low2float(__nv_bfloat162 v) { return float(v.x); }
inline float __high2float(__nv_bfloat162 v) { return float(v.y); }
