// CUDA's mathematical functions over the host's. Intrinsics of lower accuracy (`__expf`) are the exact functions here.
#pragma once

// In float and double under CUDA's names, and overloaded under the double's name.
#define EMULATOR_UNARY(name)                                \
    extern "C" double name(double);                         \
    extern "C" float name##f(float);                        \
    inline float name(float x) { return __builtin_##name##f(x); }
#define EMULATOR_BINARY(name)                               \
    extern "C" double name(double, double);                 \
    extern "C" float name##f(float, float);                 \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); }

EMULATOR_UNARY(exp)
EMULATOR_UNARY(exp2)
EMULATOR_UNARY(expm1)
EMULATOR_UNARY(log)
EMULATOR_UNARY(log2)
EMULATOR_UNARY(log10)
EMULATOR_UNARY(log1p)
EMULATOR_UNARY(logb)
EMULATOR_UNARY(sqrt)
EMULATOR_UNARY(cbrt)
EMULATOR_UNARY(sin)
EMULATOR_UNARY(cos)
EMULATOR_UNARY(tan)
EMULATOR_UNARY(asin)
EMULATOR_UNARY(acos)
EMULATOR_UNARY(atan)
EMULATOR_UNARY(sinh)
EMULATOR_UNARY(cosh)
EMULATOR_UNARY(tanh)
EMULATOR_UNARY(asinh)
EMULATOR_UNARY(acosh)
EMULATOR_UNARY(atanh)
EMULATOR_UNARY(erf)
EMULATOR_UNARY(erfc)
EMULATOR_UNARY(lgamma)
EMULATOR_UNARY(tgamma)
EMULATOR_UNARY(floor)
EMULATOR_UNARY(ceil)
EMULATOR_UNARY(trunc)
EMULATOR_UNARY(round)
EMULATOR_UNARY(rint)
EMULATOR_UNARY(nearbyint)
EMULATOR_UNARY(fabs)
EMULATOR_BINARY(pow)
EMULATOR_BINARY(atan2)
EMULATOR_BINARY(hypot)
EMULATOR_BINARY(fmod)
EMULATOR_BINARY(remainder)
EMULATOR_BINARY(fmin)
EMULATOR_BINARY(fmax)
EMULATOR_BINARY(fdim)
EMULATOR_BINARY(copysign)
EMULATOR_BINARY(nextafter)
#undef EMULATOR_UNARY
#undef EMULATOR_BINARY

extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
extern "C" double ldexp(double, int);
extern "C" float ldexpf(float, int);
extern "C" double j0(double);
extern "C" double j1(double);
extern "C" float j0f(float);
extern "C" float j1f(float);
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
inline double scalbn(double x, int n) { return __builtin_scalbn(x, n); }
inline float scalbnf(float x, int n) { return __builtin_scalbnf(x, n); }
// Results behind pointers to local variables of a thread.
extern "C" double frexp(double, int*);
extern "C" float frexpf(float, int*);
extern "C" double modf(double, double*);
extern "C" float modff(float, float*);
inline void sincosf(float x, float* s, float* c) { *s = __builtin_sinf(x); *c = __builtin_cosf(x); }
inline void sincos(double x, double* s, double* c) { *s = __builtin_sin(x); *c = __builtin_cos(x); }

// What the host's library lacks; see special.cpp.
extern "C" double emulator_erfinv(double x);
extern "C" double emulator_erfcinv(double x);
extern "C" double emulator_normcdf(double x);
extern "C" double emulator_normcdfinv(double x);
extern "C" double emulator_bessel_i(int order, double x);
extern "C" double emulator_sinpi(double x);
extern "C" double emulator_cospi(double x);

// One formula in double, rounded once for float.
#define EMULATOR_BY_DOUBLE(name, expression)                               \
    inline double name(double x) { return expression; }                    \
    inline float name##f(float given) { const double x = given; return float(expression); } \
    inline float name(float given) { return name##f(given); }
EMULATOR_BY_DOUBLE(rsqrt, 1.0 / __builtin_sqrt(x))
EMULATOR_BY_DOUBLE(rcbrt, 1.0 / __builtin_cbrt(x))
EMULATOR_BY_DOUBLE(exp10, __builtin_pow(10.0, x))
EMULATOR_BY_DOUBLE(erfcx, __builtin_exp(x * x) * __builtin_erfc(x))
EMULATOR_BY_DOUBLE(normcdf, emulator_normcdf(x))
EMULATOR_BY_DOUBLE(erfinv, emulator_erfinv(x))
EMULATOR_BY_DOUBLE(erfcinv, emulator_erfcinv(x))
EMULATOR_BY_DOUBLE(normcdfinv, emulator_normcdfinv(x))
EMULATOR_BY_DOUBLE(cyl_bessel_i0, emulator_bessel_i(0, x))
EMULATOR_BY_DOUBLE(cyl_bessel_i1, emulator_bessel_i(1, x))
EMULATOR_BY_DOUBLE(sinpi, emulator_sinpi(x))
EMULATOR_BY_DOUBLE(cospi, emulator_cospi(x))
#undef EMULATOR_BY_DOUBLE

inline int isnan(float x) { return __builtin_isnan(x) != 0; }
inline int isnan(double x) { return __builtin_isnan(x) != 0; }
inline int isinf(float x) { return __builtin_isinf(x) != 0; }
inline int isinf(double x) { return __builtin_isinf(x) != 0; }
inline int isfinite(float x) { return __builtin_isfinite(x) != 0; }
inline int isfinite(double x) { return __builtin_isfinite(x) != 0; }
inline int signbit(float x) { return __builtin_signbit(x) != 0; }
inline int signbit(double x) { return __builtin_signbit(x) != 0; }

// ---- smaller, larger, absolute --------------------------------------------------------------------------------------

#define EMULATOR_MIN_MAX(T)                                       \
    inline T min(T a, T b) { return b < a ? b : a; }              \
    inline T max(T a, T b) { return a < b ? b : a; }
EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned int)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)
#undef EMULATOR_MIN_MAX
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }
extern "C" int abs(int);
inline long abs(long x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline long long llabs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// ---- intrinsics -----------------------------------------------------------------------------------------------------

inline float __expf(float x) { return __builtin_expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return __builtin_logf(x); }
inline float __log2f(float x) { return __builtin_log2f(x); }
inline float __log10f(float x) { return __builtin_log10f(x); }
inline float __sinf(float x) { return __builtin_sinf(x); }
inline float __cosf(float x) { return __builtin_cosf(x); }
inline float __tanf(float x) { return __builtin_tanf(x); }
inline float __powf(float x, float y) { return __builtin_powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }

namespace emulator {
template <class To, class From> inline To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To result;
    __builtin_memcpy(&result, &value, sizeof(To));
    return result;
}

// Conversions to integers as the hardware makes them: the nearest there is, and 0 for NaN.
template <class T> inline T saturated(double x, double low, double high, T lowest, T highest) {
    if (__builtin_isnan(x)) return T(0);
    return x <= low ? lowest : x >= high ? highest : T(x);
}
inline int to_int(double x) { return saturated<int>(x, -2147483648.0, 2147483648.0, -2147483647 - 1, 2147483647); }
inline unsigned to_unsigned(double x) { return saturated<unsigned>(x, 0.0, 4294967296.0, 0u, 4294967295u); }
inline long long to_long(double x) {
    const long long most = 0x7fffffffffffffffll;
    return saturated<long long>(x, -9223372036854775808.0, 9223372036854775808.0, -most - 1, most);
}
}  // namespace emulator

inline int __float_as_int(float x) { return emulator::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return emulator::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return emulator::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::bits_as<double>(x); }

#define EMULATOR_TO_INTEGER(suffix, round)                                                             \
    inline int __float2int_##suffix(float x) { return emulator::to_int(round(double(x))); }            \
    inline unsigned __float2uint_##suffix(float x) { return emulator::to_unsigned(round(double(x))); } \
    inline long long __float2ll_##suffix(float x) { return emulator::to_long(round(double(x))); }      \
    inline int __double2int_##suffix(double x) { return emulator::to_int(round(x)); }                  \
    inline long long __double2ll_##suffix(double x) { return emulator::to_long(round(x)); }
EMULATOR_TO_INTEGER(rn, __builtin_rint)
EMULATOR_TO_INTEGER(rz, __builtin_trunc)
EMULATOR_TO_INTEGER(rd, __builtin_floor)
EMULATOR_TO_INTEGER(ru, __builtin_ceil)
#undef EMULATOR_TO_INTEGER
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __ull2float_rn(unsigned long long x) { return float(x); }
inline double __int2double_rn(int x) { return double(x); }
inline double __ll2double_rn(long long x) { return double(x); }
inline float __double2float_rn(double x) { return float(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1u) << (31 - i);
    return reversed;
}
