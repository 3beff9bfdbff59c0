// What CUDA C++ has and C++ has not, for g++: put before the text of every kernel. No header of the host's library is
// included, as NVRTC has none either (and they would take longer than the kernels).
#pragma once

#define __CUDACC_RTC__ 1
#define __CUDACC__ 1

// Never inlined: the call comes from code that is not instrumented.
#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
// The launcher looks at the pointers themselves; g++ is to believe no promise about them.
#define __restrict__

using size_t = __SIZE_TYPE__;
using ptrdiff_t = __PTRDIFF_TYPE__;

// ---- vector types ---------------------------------------------------------------------------------------------------

#define EMULATOR_VECTORS(name, T, align2, align4)                      \
    struct name##1 { T x; };                                           \
    struct alignas(align2) name##2 { T x, y; };                        \
    struct name##3 { T x, y, z; };                                     \
    struct alignas(align4) name##4 { T x, y, z, w; };                  \
    inline name##1 make_##name##1(T x) { return {x}; }                 \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATOR_VECTORS(char, signed char, 2, 4)
EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(uint, unsigned int, 8, 16)
EMULATOR_VECTORS(longlong, long long, 16, 16)
EMULATOR_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(double, double, 16, 16)
#undef EMULATOR_VECTORS

struct dim3 {
    unsigned int x, y, z;
};

// ---- the place of a thread ------------------------------------------------------------------------------------------

// Constant for the thread that looks at them: the scheduler sets them before a thread goes on.
extern "C" {
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
}
constexpr int warpSize = 32;

extern "C" {
int emulator_syncthreads(int vote, const char* file, int line);
unsigned long emulator_collective(int call, unsigned mask, unsigned long value, int argument, int width,
                                  const char* file, int line);
void emulator_trap(const char* words, const char* file, int line) __attribute__((noreturn));
void* emulator_dynamic_shared();
void emulator_read_only(const void* p, int size);
void emulator_atomic(void* p, int size);
void __threadfence();
void __threadfence_block();
void __threadfence_system();
}

// ---- where threads meet ---------------------------------------------------------------------------------------------
// Macros, so that a report can name the line.

#define __syncthreads() ((void)emulator_syncthreads(0, __FILE__, __LINE__))
#define __syncthreads_count(vote) emulator_syncthreads((vote) != 0, __FILE__, __LINE__)
#define __syncthreads_or(vote) (emulator_syncthreads((vote) != 0, __FILE__, __LINE__) != 0)
#define __syncthreads_and(vote) (emulator_syncthreads((vote) == 0, __FILE__, __LINE__) == 0)

#define __syncwarp(...) emulator::warp_barrier(__FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(...) emulator::shuffle(1, __FILE__, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulator::shuffle(2, __FILE__, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulator::shuffle(3, __FILE__, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulator::shuffle(4, __FILE__, __LINE__, __VA_ARGS__)
#define __ballot_sync(mask, vote) unsigned(emulator_collective(5, mask, (vote) != 0, 0, 32, __FILE__, __LINE__))
#define __any_sync(mask, vote) int(emulator_collective(6, mask, (vote) != 0, 0, 32, __FILE__, __LINE__))
#define __all_sync(mask, vote) int(emulator_collective(7, mask, (vote) != 0, 0, 32, __FILE__, __LINE__))

#define __trap() emulator_trap("__trap()", __FILE__, __LINE__)
#define assert(condition) ((condition) ? (void)0 : emulator_trap("assert(" #condition ") failed", __FILE__, __LINE__))

namespace emulator {

inline void warp_barrier(const char* file, int line, unsigned mask = 0xffffffffu) {
    emulator_collective(0, mask, 0, 0, 32, file, line);
}

template <class T>
inline T shuffle(int call, const char* file, int line, unsigned mask, T value, int argument, int width = 32) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 2, 4 or 8 bytes");
    unsigned long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = emulator_collective(call, mask, bits, argument, width, file, line);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

}  // namespace emulator

// ---- loads past the caches' rules, and atomics ----------------------------------------------------------------------

template <class T>
inline T __ldg(const T* p) {
    emulator_read_only(p, sizeof(T));
    return *p;
}
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline void __stcg(T* p, T value) { *p = value; }
template <class T> inline void __stcs(T* p, T value) { *p = value; }

namespace emulator {

// Not instrumented: the access is told once, as an atomic one. One processor thread runs all, so no more is needed.
template <class T, class Change>
__attribute__((noinline, no_sanitize("thread", "alignment"))) T update(T* p, Change change) {
    emulator_atomic(p, sizeof(T));
    const T before = *p;
    *p = change(before);
    return before;
}

}  // namespace emulator

#define EMULATOR_ATOMIC(name, T, expression)                                                       \
    inline T name(T* p, T value) {                                                                 \
        return emulator::update(p, [=](T old) __attribute__((no_sanitize("thread"))) -> T { return expression; }); \
    }
#define EMULATOR_FOR_INTEGERS(name, expression)                \
    EMULATOR_ATOMIC(name, int, expression)                     \
    EMULATOR_ATOMIC(name, unsigned int, expression)            \
    EMULATOR_ATOMIC(name, unsigned long long, expression)
// Sums wrap around, as the hardware's do.
EMULATOR_ATOMIC(atomicAdd, int, int(unsigned(old) + unsigned(value)))
EMULATOR_ATOMIC(atomicAdd, unsigned int, old + value)
EMULATOR_ATOMIC(atomicAdd, unsigned long long, old + value)
EMULATOR_ATOMIC(atomicAdd, float, old + value)
EMULATOR_ATOMIC(atomicAdd, double, old + value)
EMULATOR_ATOMIC(atomicSub, int, int(unsigned(old) - unsigned(value)))
EMULATOR_ATOMIC(atomicSub, unsigned int, old - value)
EMULATOR_FOR_INTEGERS(atomicMin, value < old ? value : old)
EMULATOR_ATOMIC(atomicMin, long long, value < old ? value : old)
EMULATOR_FOR_INTEGERS(atomicMax, value > old ? value : old)
EMULATOR_ATOMIC(atomicMax, long long, value > old ? value : old)
EMULATOR_FOR_INTEGERS(atomicAnd, old & value)
EMULATOR_FOR_INTEGERS(atomicOr, old | value)
EMULATOR_FOR_INTEGERS(atomicXor, old ^ value)
EMULATOR_FOR_INTEGERS(atomicExch, value)
EMULATOR_ATOMIC(atomicExch, float, value)
EMULATOR_ATOMIC(atomicInc, unsigned int, old >= value ? 0u : old + 1u)
EMULATOR_ATOMIC(atomicDec, unsigned int, old == 0u || old > value ? value : old - 1u)
#undef EMULATOR_FOR_INTEGERS
#undef EMULATOR_ATOMIC

#define EMULATOR_SWAP(T)                                                                                      \
    inline T atomicCAS(T* p, T expected, T value) {                                                           \
        return emulator::update(                                                                              \
            p, [=](T old) __attribute__((no_sanitize("thread"))) -> T { return old == expected ? value : old; }); \
    }
EMULATOR_SWAP(int)
EMULATOR_SWAP(unsigned int)
EMULATOR_SWAP(unsigned long long)
EMULATOR_SWAP(unsigned short)
#undef EMULATOR_SWAP

#include "mathematics.hpp"
#include "halves.hpp"
#include "kernels.hpp"
